"""The inspection API: answers questions about the cluster from the operator's memory, as an aggregated API.

    kubectl get --raw /apis/inspection.trimtab.dev/v1alpha1/namespaces/shop/pods/web-1/explanation

    user -> kube-apiserver: authenticates the user, authorizes the request
         -> aggregation layer: TLS with the front-proxy client certificate, the user in X-Remote-* headers
         -> server.py: trusts the headers because of the certificate (front_proxy.py), checks what the user may list
         -> inspector.py: borrows the snapshot for one question at a time, calls trimtab.inspection

``api_service.py`` registers the APIService while this process can answer, and removes it at the shutdown.
"""
