output "components" {
  description = "Applications of each component, by the component's name."
  value = {
    auth        = module.auth.components
    core        = module.core.components
    katib       = module.katib.components
    kfp         = module.kfp.components
    kserve      = module.kserve.components
    notebooks   = module.notebooks.components
    tensorboard = module.tensorboard.components
    training    = module.training.components
  }
}

output "istio_integrator" {
  description = "Name and endpoints of istio-integrator."
  value       = module.istio_integrator
}
