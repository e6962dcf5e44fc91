"""A real control plane on this machine: etcd, kube-apiserver, controllers, scheduler and kwok as plain processes."""
