// Package main has the two programs between which the admission benchmark places trimtab's webhooks.
//
// "webhook" serves webhooks that decide nothing. The API server's durations of its calls are the least that any webhook
// in its place has. "load" sends requests at a constant rate, whether earlier ones have been answered or not.
package main

import (
	"fmt"
	"os"
)

func main() {
	programs := map[string]func([]string) error{"webhook": serve, "load": load}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: admission-probe webhook|load FLAGS")
		os.Exit(2)
	}
	if err := programs[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
