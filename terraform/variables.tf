variable "model_uuid" {
  description = "UUID of the Juju model to deploy into, usually that of Charmed Kubeflow."
  type        = string
}

variable "app_name" {
  description = "Name of the application."
  type        = string
  default     = "istio-integrator"
}

variable "base" {
  description = "Base of the charm."
  type        = string
  default     = "ubuntu@24.04"
}

variable "channel" {
  description = "Channel of the charm."
  type        = string
  default     = "latest/stable"
}

variable "revision" {
  description = "Revision of the charm; null takes the newest of the channel."
  type        = number
  default     = null
}

variable "resources" {
  description = "Resources of the charm, as in { lifecycle-image = \"registry.example/sidecar-lifecycle:1\" }; null takes the channel's."
  type        = map(string)
  default     = null
}

variable "trust" {
  description = "Let the charm act in the cluster. false needs the roles of rbac/."
  type        = bool
  default     = true
}

variable "constraints" {
  description = "Constraints of Juju for the application's pods, as in \"mem=512M\"; null sets none."
  type        = string
  default     = null
}

variable "storage_directives" {
  description = "Storage directives by label; the charm has no storage, and takes none."
  type        = map(string)
  default     = {}
}

variable "units" {
  description = "Number of units; one acts, the others wait."
  type        = number
  default     = 1
}

variable "config" {
  description = "Options of the charm by name, as in { hosts = \"kubeflow.example.com\" }; others keep their defaults."
  type        = map(string)
  default     = {}

  validation {
    condition = alltrue([for name in keys(var.config) : contains([
      "authorization",
      "delete-broken-pods",
      "excluded-outbound-ports",
      "excluded-pods",
      "gateway-cpu",
      "gateway-memory",
      "gateway-replicas",
      "gateway-service",
      "gateway-service-annotations",
      "gateway-service-type",
      "hold-application",
      "hosts",
      "https-redirect",
      "ignore-containers",
      "image-registries",
      "included-pods",
      "istiod-namespace",
      "job-sidecars",
      "log-level",
      "mesh-mode",
      "mtls",
      "mtls-exceptions",
      "pod-annotations",
      "pod-labels",
      "pod-networks",
      "proxy-shutdown",
      "require-authentication",
      "restart-max-unavailable",
      "restart-pods",
      "revision",
      "routing",
      "served-namespaces",
      "tenant-policy",
      "tls-secret",
      "wait-for-containers",
    ], name)])
    error_message = "config has an option that the charm does not know: see config.yaml."
  }
}
