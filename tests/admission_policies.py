"""Policies of the API server itself, with their bindings."""

VERSION = "admissionregistration.k8s.io/v1"


def validating(name, namespace, *validations):
    """Refuse new pods of a namespace for which one of the validations does not hold."""
    spec = {"failurePolicy": "Fail", "validations": list(validations), **_pods(namespace)}
    yield _object("ValidatingAdmissionPolicy", name, spec)
    bound = {"policyName": name, "validationActions": ["Deny"]}
    yield _object("ValidatingAdmissionPolicyBinding", name, bound)


def mutating(name, patch, **spec):
    """Apply a JSON patch of CEL, to new pods of a namespace or as the rest of the spec says."""
    if namespace := spec.pop("namespace", None):
        spec |= _pods(namespace)
    mutation = {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}
    spec = {"failurePolicy": "Fail", "reinvocationPolicy": "Never", **spec}
    yield _object("MutatingAdmissionPolicy", name, {**spec, "mutations": [mutation]})
    yield _object("MutatingAdmissionPolicyBinding", name, {"policyName": name})


def _object(kind, name, spec):
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _pods(namespace):
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    rules = [{**rule, "resources": ["pods"]}]
    return {"matchConstraints": {"namespaceSelector": selector, "resourceRules": rules}}
