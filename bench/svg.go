package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"text/template"
)

// The plot: a column for each series, time above memory. Its colours follow the
// reader's light or dark mode; the file needs nothing else.
const (
	panelWidth, panelHeight = 215.0, 170.0
	panelLeft, panelTop     = 58.0, 64.0
	gapX, gapY              = 50.0, 84.0
)

type panel struct {
	X, Y          float64
	Title, XLabel string
	YLabel        string // "" except in the first column
	XTicks        []tick
	YTicks        []tick
	Lines         []plotLine
	Notes         []note
}

type tick struct {
	At   float64
	Text string
}

type plotLine struct {
	Class          string
	X1, Y1, X2, Y2 float64
	Dots           []dot
}

type dot struct{ X, Y float64 }

type note struct {
	Class, Text string
	X, Y        float64
}

var plotTemplate = template.Must(template.New("svg").Funcs(template.FuncMap{
	"n":   func(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) },
	"add": func(a, b float64) float64 { return a + b },
	"w":   func() float64 { return panelWidth }, "h": func() float64 { return panelHeight },
}).Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{n .Width}} {{n .Height}}" font-family="system-ui, sans-serif" font-size="11" role="img" aria-labelledby="t">
<title id="t">{{.Title}}</title>
<style>
.ink { fill: #333 } .faint { fill: #666 } .grid { stroke: #ddd } .axis { stroke: #888 }
.plan { fill: #0a6ebd; stroke: #0a6ebd } .apply { fill: #c2410c; stroke: #c2410c } .verify { fill: #15803d; stroke: #15803d }
text.plan, text.apply, text.verify { stroke: none } .bold { font-weight: 600 } .fit { stroke-dasharray: 5 3; stroke-width: 1.3 }
@media (prefers-color-scheme: dark) {
.ink { fill: #e6e6e6 } .faint { fill: #a0a0a0 } .grid { stroke: #3a3a3a } .axis { stroke: #808080 }
.plan { fill: #60b0f4; stroke: #60b0f4 } .apply { fill: #fb923c; stroke: #fb923c } .verify { fill: #4ade80; stroke: #4ade80 }
}
</style>
{{range .Legend}}<circle class="{{.Class}}" cx="{{n .X}}" cy="{{n .Y}}" r="4"/><text class="ink" x="{{n (add .X 9)}}" y="{{n (add .Y 4)}}">{{.Text}}</text>
{{end}}<text class="faint" x="{{n .FitX}}" y="22">dashed: straight line by least squares, with its R²</text>
{{range .Panels}}<g transform="translate({{n .X}} {{n .Y}})">
<text class="ink bold" x="0" y="-12">{{.Title}}</text>
{{range .YTicks}}<line class="grid" x1="0" x2="{{n w}}" y1="{{n .At}}" y2="{{n .At}}"/><text class="faint" x="-6" y="{{n (add .At 4)}}" text-anchor="end">{{.Text}}</text>
{{end}}{{range .XTicks}}<line class="axis" x1="{{n .At}}" x2="{{n .At}}" y1="{{n h}}" y2="{{n (add h 4)}}"/><text class="faint" x="{{n .At}}" y="{{n (add h 16)}}" text-anchor="middle">{{.Text}}</text>
{{end}}<line class="axis" x1="0" x2="{{n w}}" y1="{{n h}}" y2="{{n h}}"/><line class="axis" x1="0" x2="0" y1="0" y2="{{n h}}"/>
<text class="faint" x="{{n (add w 0)}}" y="{{n (add h 31)}}" text-anchor="end">{{.XLabel}}</text>
{{range .Lines}}{{$class := .Class}}<line class="{{.Class}} fit" x1="{{n .X1}}" y1="{{n .Y1}}" x2="{{n .X2}}" y2="{{n .Y2}}"/>
{{range .Dots}}<circle class="{{$class}}" cx="{{n .X}}" cy="{{n .Y}}" r="3"/>{{end}}
{{end}}{{range .Notes}}<text class="{{.Class}}" x="{{n .X}}" y="{{n .Y}}">{{.Text}}</text>
{{end}}</g>
{{end}}</svg>
`))

// draw writes the plot of growth series to a file; "" is none.
func draw(path string, tables []Table) error {
	if path == "" {
		return nil
	}
	content, err := plot(tables)
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

func plot(tables []Table) ([]byte, error) {
	type legend struct {
		Class, Text string
		X, Y        float64
	}
	picture := struct {
		Width, Height, FitX float64
		Title               string
		Legend              []legend
		Panels              []panel
	}{Title: "Time and peak memory of plan, apply and verify against records, business keys, partitions and padding"}
	for i, id := range []string{rekeyPlan, rekeyApply, rekeyVerify} {
		picture.Legend = append(picture.Legend, legend{id, id, panelLeft + 4 + 70*float64(i), 18})
	}
	picture.FitX = panelLeft + 220
	column := 0
	for _, series := range seriesNames {
		of := curves(tables, series)
		if len(of) == 0 {
			continue
		}
		x := panelLeft + float64(column)*(panelWidth+gapX)
		time := newPanel(of, series, "seconds", func(c curve) []float64 { return c.time })
		time.X, time.Y = x, panelTop
		memory := newPanel(of, series, "peak memory, MiB", func(c curve) []float64 { return c.memory })
		memory.X, memory.Y = x, panelTop+panelHeight+gapY
		picture.Panels = append(picture.Panels, time, memory)
		column++
	}
	if column == 0 {
		return nil, errors.New("there is no series to draw")
	}
	picture.Width = panelLeft + float64(column)*(panelWidth+gapX) - gapX + 20
	picture.Height = panelTop + 2*panelHeight + gapY + 56
	var out bytes.Buffer
	err := plotTemplate.Execute(&out, picture)
	return out.Bytes(), err
}

func newPanel(of []curve, series, unit string, values func(curve) []float64) panel {
	most, least, high := 0.0, math.Inf(1), 0.0
	for _, c := range of {
		for i, y := range values(c) {
			most, least, high = max(most, c.x[i]), min(least, c.x[i]), max(high, y)
		}
	}
	xStep, yStep := niceStep(most/4), niceStep(high/4)
	xEnd, yEnd := math.Ceil(most/xStep)*xStep, math.Ceil(high*1.02/yStep)*yStep
	if xEnd == 0 || yEnd == 0 {
		xEnd, yEnd = max(xEnd, 1), max(yEnd, 1)
	}
	atX := func(x float64) float64 { return x / xEnd * panelWidth }
	atY := func(y float64) float64 { return panelHeight - y/yEnd*panelHeight }
	p := panel{Title: unit, XLabel: seriesLabel(series)}
	for x := 0.0; x <= xEnd+xStep/2; x += xStep {
		p.XTicks = append(p.XTicks, tick{atX(x), short(x)})
	}
	for y := 0.0; y <= yEnd+yStep/2; y += yStep {
		p.YTicks = append(p.YTicks, tick{atY(y), short(y)})
	}
	for i, c := range of {
		y := values(c)
		f := fit(c.x, y)
		l := plotLine{Class: c.id, X1: atX(least), Y1: atY(max(0, f.at(least))), X2: atX(most), Y2: atY(max(0, f.at(most)))}
		for i := range c.x {
			l.Dots = append(l.Dots, dot{atX(c.x[i]), atY(y[i])})
		}
		p.Lines = append(p.Lines, l)
		p.Notes = append(p.Notes, note{c.id, describeFit(f, least, most), 66 * float64(i), panelHeight + 46})
	}
	return p
}

// describeFit gives R², or says that a line is flat: then R² is that of noise.
func describeFit(f line, least, most float64) string {
	if from, to := f.at(least), f.at(most); math.Abs(to-from) < 0.15*max(from, to) {
		return "flat"
	}
	return fmt.Sprintf("R² %.3f", f.r2)
}

func seriesLabel(series string) string {
	if series == byPadding {
		return "padding records"
	}
	return series
}

// niceStep is the smallest of 1, 2, 2.5, 5 times a power of ten that is at least v.
func niceStep(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if v <= m*power*1.0000001 {
			return m * power
		}
	}
	return 10 * power
}

// short writes a tick: 1.5 M, 200 k, 0.25.
func short(v float64) string {
	number := func(v float64) string { return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) }
	switch {
	case v >= 1e6:
		return number(v/1e6) + " M"
	case v >= 1e3:
		return number(v/1e3) + " k"
	}
	return number(v)
}
