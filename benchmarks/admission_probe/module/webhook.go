package main

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

type review struct {
	Request struct {
		UID string `json:"uid"`
	} `json:"request"`
}

// serve answers each request with the same response.
func serve(arguments []string) error {
	flags := flag.NewFlagSet("webhook", flag.ExitOnError)
	address := flags.String("listen", "", "address to listen on")
	certificate := flags.String("cert", "", "file with the certificate")
	key := flags.String("key", "", "file with the private key")
	record := flags.String("record", "", "directory to write the first request of each path to")
	patch := flags.String("patch", "", "JSON patch, in base64, of each response to a path that begins with /mutate/")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	mutation := ""
	if *patch != "" {
		mutation = `,"patchType":"JSONPatch","patch":"` + *patch + `"`
	}
	var recorded sync.Map
	handler := func(writer http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var given review
		if err == nil {
			err = json.Unmarshal(body, &given)
		}
		if err != nil {
			http.Error(writer, err.Error(), http.StatusBadRequest)
			return
		}
		if _, known := recorded.LoadOrStore(request.URL.Path, true); !known && *record != "" {
			name := strings.ReplaceAll(strings.Trim(request.URL.Path, "/"), "/", "-") + ".json"
			if err := os.WriteFile(filepath.Join(*record, name), body, 0o600); err != nil {
				http.Error(writer, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		answer := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"uid":"` +
			given.Request.UID + `"`
		if strings.HasPrefix(request.URL.Path, "/mutate/") {
			answer += mutation
		}
		writer.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(writer, answer+"}}")
	}
	server := &http.Server{
		Addr:    *address,
		Handler: http.HandlerFunc(handler),
		// No HTTP/2, because the API server does not use it for webhooks behind a Service.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	return server.ListenAndServeTLS(*certificate, *key)
}
