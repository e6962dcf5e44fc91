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
		UID  string `json:"uid"`
		Name string `json:"name"`
	} `json:"request"`
}

// template returns the second part of a pod's name, LOAD-TEMPLATE-NUMBER: the template that the pod was made from.
func template(name string) string {
	_, rest, _ := strings.Cut(name, "-")
	found, _, _ := strings.Cut(rest, "-")
	return found
}

func known(names *sync.Map, name string) bool {
	_, found := names.LoadOrStore(name, true)
	return found
}

// serve answers each request for the pods of a template with the same response.
func serve(arguments []string) error {
	flags := flag.NewFlagSet("webhook", flag.ExitOnError)
	address := flags.String("listen", "", "address to listen on")
	certificate := flags.String("cert", "", "file with the certificate")
	key := flags.String("key", "", "file with the private key")
	record := flags.String("record", "", "directory to write the first request of each webhook and template to")
	patches := flags.String("patches", "", "file with the JSON patches, in base64, of the responses, by webhook and template")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	mutations := map[string]string{}
	content, err := os.ReadFile(*patches)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, &mutations); err != nil {
		return err
	}
	for name, patch := range mutations {
		mutations[name] = `,"patchType":"JSONPatch","patch":"` + patch + `"`
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
		webhook := strings.ReplaceAll(strings.Trim(request.URL.Path, "/"), "/", "-")
		name := webhook + "." + template(given.Request.Name)
		if *record != "" && !known(&recorded, name) {
			if err := os.WriteFile(filepath.Join(*record, name+".json"), body, 0o600); err != nil {
				http.Error(writer, err.Error(), http.StatusInternalServerError)
				return
			}
		}
		answer := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"uid":"` +
			given.Request.UID + `"` + mutations[name]
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
