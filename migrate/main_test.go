package migrate

import (
	"os"
	"testing"

	"rekey/fixtures/testcluster"
)

func TestMain(m *testing.M) { os.Exit(testcluster.Main(m)) }
