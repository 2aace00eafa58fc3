package keycodec

import (
	"bytes"
	"math"
	"strconv"
)

// maxDoubleDigits is the most significant digits that any JDK prints for a double. Since JDK 19
// Double.toString prints the shortest decimal that reads back as the same value, at most 17 digits.
// Before, it printed a decimal that reads back, too, but not always the shortest or nearest one:
// 2.0E23 came out as 1.9999999999999998E23, large whole numbers with as many as 18 digits.
const maxDoubleDigits = 18

// parseJavaDouble reads text that Double.toString may have printed, on any JDK. It accepts every text
// of the right shape whose digits read back as a value of the right magnitude. It does not go on to
// compare with the digits that one JDK would choose, since the topic does not say which JDK wrote it;
// so a hand-made "0.10000000000000001" passes for 0.1.
//
// The shape: plain from 1.0E-3 up to below 1.0E7, else one digit before the point and an exponent;
// always a digit on both sides of the point; no zero at the end but the one after the point.
func parseJavaDouble(text []byte) (float64, bool) {
	switch string(text) {
	case "NaN":
		return math.Float64frombits(0x7ff8000000000000), true // Java has one, and it is not Go's
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	case "0.0":
		return 0, true
	case "-0.0":
		return math.Copysign(0, -1), true
	}
	magnitude, _ := bytes.CutPrefix(text, []byte("-"))
	mantissa, exponent, scientific := bytes.Cut(magnitude, []byte("E"))
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	if !isDigits(whole) || !isDigits(fraction) || whole[0] == '0' && len(whole) > 1 {
		return 0, false
	}
	if len(fraction) > 1 && fraction[len(fraction)-1] == '0' {
		return 0, false
	}
	if significantDigits(whole, fraction) > maxDoubleDigits {
		return 0, false
	}
	if scientific {
		if _, ok := parseSigned(exponent, 32); !ok || len(whole) != 1 || whole[0] == '0' {
			return 0, false
		}
	}
	d, err := strconv.ParseFloat(string(text), 64)
	abs := math.Abs(d)
	plain := 1e-3 <= abs && abs < 1e7
	if err != nil || abs == 0 || plain == scientific {
		return 0, false
	}
	return d, true
}

func isDigits(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(text) > 0
}

// significantDigits counts from the first to the last digit that is not zero.
func significantDigits(whole, fraction []byte) int {
	fraction = bytes.TrimRight(fraction, "0")
	if len(fraction) == 0 {
		return len(bytes.Trim(whole, "0"))
	}
	if whole = bytes.TrimLeft(whole, "0"); len(whole) == 0 {
		return len(bytes.TrimLeft(fraction, "0"))
	}
	return len(whole) + len(fraction)
}
