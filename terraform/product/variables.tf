variable "model_uuid" {
  description = "UUID of the Juju model to deploy into, which is named kubeflow."
  type        = string
}

variable "istio_integrator" {
  description = "Settings of istio-integrator, as the module of the charm takes them."
  type = object({
    channel   = optional(string, "latest/stable")
    revision  = optional(number)
    resources = optional(map(string))
    trust     = optional(bool, true)
    units     = optional(number, 1)
    config    = optional(map(string), {})
  })
  default = {}
}

variable "dex_auth_config" {
  description = "Options of dex-auth, as in { static-username = \"admin\", static-password = \"...\" }."
  type        = map(string)
  default     = {}
  sensitive   = true
}

variable "kserve_config" {
  description = "Options of kserve-controller that replace or complete those of the bundle."
  type        = map(string)
  default     = {}
}

variable "mysql_storage_size" {
  description = "Size of the storage of the database that Katib and Kubeflow Pipelines share."
  type        = string
  default     = "10G"
}
