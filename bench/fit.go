package main

import (
	"fmt"
	"io"
)

// line is a straight line through points, by least squares.
type line struct {
	slope, intercept float64
	r2               float64 // 1: all points lie on it
}

func fit(x, y []float64) line {
	n := float64(len(x))
	var sx, sy float64
	for i := range x {
		sx += x[i]
		sy += y[i]
	}
	mx, my := sx/n, sy/n
	var sxx, sxy, syy float64
	for i := range x {
		sxx += (x[i] - mx) * (x[i] - mx)
		sxy += (x[i] - mx) * (y[i] - my)
		syy += (y[i] - my) * (y[i] - my)
	}
	if sxx == 0 {
		return line{intercept: my}
	}
	l := line{slope: sxy / sxx, r2: 1}
	l.intercept = my - l.slope*mx
	if syy > 0 {
		l.r2 = sxy * sxy / (sxx * syy)
	}
	return l
}

func (l line) at(x float64) float64 { return l.intercept + l.slope*x }

// curve is what one phase took along a series.
type curve struct {
	id     string
	x      []float64
	time   []float64 // seconds, medians
	memory []float64 // MiB, peaks
}

// curves gives the three phases of a series, in the order of x.
func curves(tables []Table, series string) []curve {
	var out []curve
	for _, id := range []string{rekeyPlan, rekeyApply, rekeyVerify} {
		c := curve{id: id}
		for i := range tables {
			t := &tables[i]
			if t.Series != series || len(t.seconds(id)) == 0 {
				continue
			}
			c.x = append(c.x, t.X)
			c.time = append(c.time, median(t.seconds(id)))
			c.memory = append(c.memory, float64(t.peakMiB(id)))
		}
		if len(c.x) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// printGrowth writes what the plot shows as numbers.
func printGrowth(out io.Writer, tables []Table) {
	fmt.Fprintln(out, "| series | from | to | phase | seconds at both ends | straight line, R² | peak MiB at both ends |")
	fmt.Fprintln(out, "|---|---:|---:|---|---|---|---|")
	for _, series := range seriesNames {
		for _, c := range curves(tables, series) {
			last := len(c.x) - 1
			f := fit(c.x, c.time)
			fmt.Fprintf(out, "| %s | %s | %s | %s | %.2f, %.2f | %.2f s + %s, %.3f | %.0f, %.0f |\n", series, thousands(int64(c.x[0])), thousands(int64(c.x[last])), c.id,
				c.time[0], c.time[last], f.intercept, perUnit(f.slope, c.x[last]), f.r2, c.memory[0], c.memory[last])
		}
	}
}

// perUnit writes a slope for an amount that suits the series.
func perUnit(slope, upTo float64) string {
	switch {
	case upTo >= 1e6:
		return fmt.Sprintf("%.2f s a million", slope*1e6)
	case upTo >= 1e3:
		return fmt.Sprintf("%.3f s a thousand", slope*1e3)
	}
	return fmt.Sprintf("%.4f s each", slope)
}
