package report

// Convert is what a conversion of lines did.
type Convert struct {
	Schema      int    `json:"schema_version"`
	Tool        string `json:"tool"`
	From        string `json:"from"`
	To          string `json:"to"`
	Lines       int64  `json:"lines"`
	Converted   int64  `json:"converted"`
	Copied      int64  `json:"copied"`
	Quarantined int64  `json:"quarantined"`
	Dropped     int64  `json:"dropped"`
	Unparseable int64  `json:"unparseable"` // lines, whatever became of them; repaired ones are not
}
