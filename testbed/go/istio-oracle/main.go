// Istio-oracle judges proxy.istio.io/config annotations by istiod's own code, for a test.
//
// It reads one JSON string per line and answers each with one line: the ProxyConfig that istiod
// would use, or its error.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"

	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/util/protomarshal"
)

type answer struct {
	Error  string          `json:"error,omitempty"`
	Config json.RawMessage `json:"config,omitempty"`
}

func judge(value string) answer {
	applied, err := mesh.ApplyProxyConfig(value, mesh.DefaultMeshConfig())
	if err != nil {
		return answer{Error: err.Error()}
	}
	config, err := protomarshal.ToJSON(applied.DefaultConfig)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Config: json.RawMessage(config)}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	output := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var value string
		if err := json.Unmarshal(lines.Bytes(), &value); err != nil {
			log.Fatalf("%s: %v", lines.Text(), err)
		}
		if err := output.Encode(judge(value)); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}
