// Command jujuc is every hook tool: it hands its name, arguments and input to the unit's agent, and
// prints what the agent answers. One line of JSON goes each way.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
)

type request struct {
	Context   string   `json:"context"`
	Tool      string   `json:"tool"`
	Arguments []string `json:"arguments"`
	Input     string   `json:"input"`
}

type answer struct {
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Code   int    `json:"code"`
}

func main() {
	call := request{
		Context:   os.Getenv("JUJU_CONTEXT_ID"),
		Tool:      filepath.Base(os.Args[0]),
		Arguments: os.Args[1:],
	}
	if call.Context == "" {
		fail("JUJU_CONTEXT_ID not set")
	}
	if wantsInput(call.Arguments) {
		text, err := io.ReadAll(os.Stdin)
		if err != nil {
			fail(err)
		}
		call.Input = string(text)
	}
	said, err := ask(call)
	if err != nil {
		fail(err)
	}
	os.Stdout.WriteString(said.Stdout)
	os.Stderr.WriteString(said.Stderr)
	os.Exit(said.Code)
}

func ask(call request) (answer, error) {
	var said answer
	connection, err := net.Dial("unix", os.Getenv("JUJU_AGENT_SOCKET_ADDRESS"))
	if err != nil {
		return said, err
	}
	defer connection.Close()
	if err := json.NewEncoder(connection).Encode(call); err != nil {
		return said, err
	}
	err = json.NewDecoder(connection).Decode(&said)
	return said, err
}

// wantsInput tells `--file -` and `--file=-`, the ways to say that settings come on standard input.
func wantsInput(arguments []string) bool {
	place := slices.Index(arguments, "--file")
	return slices.Contains(arguments, "--file=-") ||
		place >= 0 && place+1 < len(arguments) && arguments[place+1] == "-"
}

func fail(reason any) {
	fmt.Fprintln(os.Stderr, "ERROR", reason)
	os.Exit(1)
}
