resource "juju_application" "istio_integrator" {
  name       = var.app_name
  model_uuid = var.model_uuid
  trust      = var.trust
  units      = var.units
  config     = var.config
  resources  = var.resources

  constraints        = var.constraints
  storage_directives = var.storage_directives

  charm {
    name     = "istio-integrator"
    base     = var.base
    channel  = var.channel
    revision = var.revision
  }
}
