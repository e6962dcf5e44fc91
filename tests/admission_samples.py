"""The admission configuration of OpenShift 3.11's documentation, as printed there.

`apiversion` is misspelt, `...` stands for the rest of the file, numbers refer to footnotes, and one entry is indented
by one space more than the others.
"""

from __future__ import annotations

NODE_NAME = """\
    ...
    admissionConfig:
      pluginConfig:
        PodNodeConstraints:
          configuration:
            apiversion: v1
            kind: PodNodeConstraintsConfig
    ...
"""
NODE_SELECTOR = """\
    ...
    admissionConfig:
      pluginConfig:
        PodNodeConstraints:
          configuration:
            apiversion: v1
            kind: PodNodeConstraintsConfig
            nodeSelectorLabelBlacklist:
              - kubernetes.io/hostname
              - <label>
    ...
"""
PROJECTS = """\
      admissionConfig:
        pluginConfig:
          PodNodeSelector:
            configuration:
              podNodeSelectorPluginConfig: 1
                clusterDefaultNodeSelector: "k3=v3" 2
                ns1: region=west,env=test,infra=fedora,os=fedora 3
"""
PROJECTS_FILE = """\
      podNodeSelectorPluginConfig:
          clusterDefaultNodeSelector: "k3=v3"
           ns1: region=west,env=test,infra=fedora,os=fedora
"""
PROJECTS_REFERENCE = """\
      admissionConfig:
        pluginConfig:
          PodNodeSelector:
            location: <path-to-file>
"""
PROJECT = """\
    apiVersion: v1
    kind: Namespace
    metadata
      name: ns1
      annotations:
        scheduler.alpha.kubernetes.io/node-selector: env=test,infra=fedora 1
    spec: {},
    status: {}
"""
"""The project of PROJECTS, with two slips of its own: `metadata` without a colon, and commas after the last fields."""
HELLO_POD = """\
    apiVersion: v1
    kind: Pod
    metadata:
      labels:
        name: hello-pod
      name: hello-pod
    spec:
      containers:
        - image: "docker.io/ocpqe/hello-pod:latest"
          imagePullPolicy: IfNotPresent
          name: hello-pod
          ports:
            - containerPort: 8080
              protocol: TCP
          resources: {}
          securityContext:
            capabilities: {}
            privileged: false
          terminationMessagePath: /dev/termination-log
      dnsPolicy: ClusterFirst
      restartPolicy: Always
      nodeSelector: 1
        env: test
        os: fedora
      serviceAccount: ""
    status: {}
"""
"""The pod that is created in that project."""

TOLERATION_SECONDS = """\
    admissionConfig:
      pluginConfig:
        DefaultTolerationSeconds:
          configuration:
            kind: DefaultAdmissionConfig
            apiVersion: v1
            disable: false
"""
MASTER_CONFIG = """\
admissionConfig:
  pluginConfig:
    BuildDefaults:
      configuration:
        apiVersion: v1
        env: []
        kind: BuildDefaultsConfig
    PodNodeConstraints:
      configuration:
        apiVersion: v1
        kind: PodNodeConstraintsConfig
        nodeSelectorLabelBlacklist: [region]
apiLevels: [v1]
apiVersion: v1
controllers: '*'
etcdClientInfo: {ca: master.etcd-ca.crt}
imagePolicyConfig: {internalRegistryHostname: docker-registry.default.svc:5000}
kind: MasterConfig
kubernetesMasterConfig:
  admissionConfig:
    pluginConfig:
      ExtendedResourceToleration:
        configuration: {apiVersion: v1, kind: DefaultAdmissionConfig, disable: false}
      DefaultTolerationSeconds:
        configuration: {apiVersion: v1, kind: DefaultAdmissionConfig, disable: false}
  apiServerArguments:
    default-not-ready-toleration-seconds: ["60"]
    runtime-config: []
  schedulerConfigFile: /etc/origin/master/scheduler.json
projectConfig:
  defaultNodeSelector: node-role.kubernetes.io/compute=true
  projectRequestTemplate: ''
"""
"""The parts of a complete file that matter, as OpenShift's installer writes it."""

WHITELIST = {"ns1": "region=west,env=test,infra=fedora,os=fedora"}
SELECTORS = {"clusterDefaultNodeSelector": "k3=v3", "namespaceWhitelists": WHITELIST}

SAMPLES = {
    "node name": (NODE_NAME, {"podNodeConstraints": {}}, ["'...' is ignored", "apiversion: is read as apiVersion"]),
    "node selector": (
        NODE_SELECTOR,
        {"podNodeConstraints": {"nodeSelectorLabelBlacklist": ["kubernetes.io/hostname"]}},
        [
            "'...' is ignored",
            "apiversion: is read as apiVersion",
            "nodeSelectorLabelBlacklist[1]: <label> is a placeholder and is ignored",
        ],
    ),
    "projects": (PROJECTS, {"podNodeSelector": SELECTORS}, ["numbers that refer to footnotes are ignored"]),
    "file of projects": (PROJECTS_FILE, {"podNodeSelector": SELECTORS}, ["with different indentation"]),
    "reference to the file": (
        PROJECTS_REFERENCE,
        {},
        ["PodNodeSelector.location: <path-to-file> is not read; convert the file together with this one"],
    ),
    "toleration seconds": (TOLERATION_SECONDS, {"defaultTolerationSeconds": {}}, []),
    "complete file": (
        MASTER_CONFIG,
        {
            "podNodeConstraints": {"nodeSelectorLabelBlacklist": ["region"]},
            "extendedResourceToleration": {},
            "defaultTolerationSeconds": {"notReadyTolerationSeconds": 60},
            "podNodeSelector": {"clusterDefaultNodeSelector": "node-role.kubernetes.io/compute=true"},
        },
        ["pluginConfig.BuildDefaults: does not concern the placement of pods and is ignored"],
    ),
}
"""The samples, with the rules that they become and parts of the warnings, one for each slip."""
