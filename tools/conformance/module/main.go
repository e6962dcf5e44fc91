// Command e2e runs the specs of Kubernetes' own e2e packages that it imports, against the cluster of a kubeconfig.
package main

import (
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"

	_ "k8s.io/kubernetes/test/e2e/node"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
)

// binary takes the place of testing.T: what failed is in the reports, and RunSpecs returns whether all passed.
type binary struct{}

func (binary) Fail() {}

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	// Ginkgo matches --ginkgo.focus against this description as well, so it holds no word of a spec.
	if !ginkgo.RunSpecs(binary{}, "-", suite, reporter) {
		os.Exit(1)
	}
}
