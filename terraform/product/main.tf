# Charmed Kubeflow from Canonical's components, with istio-integrator where their product for sidecars
# has istio-pilot and istio-ingressgateway. All components are of one commit.

module "istio_integrator" {
  source     = "../"
  model_uuid = var.model_uuid

  channel   = var.istio_integrator.channel
  revision  = var.istio_integrator.revision
  resources = var.istio_integrator.resources
  trust     = var.istio_integrator.trust
  units     = var.istio_integrator.units
  config    = var.istio_integrator.config
}

locals {
  # What the components integrate with, as they take it.
  mesh = {
    for key in ["ingress", "ingress_auth", "gateway_info"] : key => {
      kind     = "endpoint"
      name     = module.istio_integrator.app_name
      endpoint = module.istio_integrator.provides[key]
    }
  }
  dashboard_links = {
    kind     = "endpoint"
    name     = module.core.provides.kubeflow_dashboard_links.name
    endpoint = module.core.provides.kubeflow_dashboard_links.endpoint
  }
  database = {
    kind     = "endpoint"
    name     = module.mysql.app_name
    endpoint = module.mysql.provides.database
  }
}

module "auth" {
  source     = "git::https://github.com/canonical/charmed-kubeflow-solutions//terraform/components/auth?ref=0ca1448c50c016a2c3d4b14d84c5e04637c320df"
  model_uuid = var.model_uuid

  ingress      = local.mesh.ingress
  ingress_auth = local.mesh.ingress_auth
  dex_auth     = { config = var.dex_auth_config }
}

module "core" {
  source     = "git::https://github.com/canonical/charmed-kubeflow-solutions//terraform/components/core?ref=0ca1448c50c016a2c3d4b14d84c5e04637c320df"
  model_uuid = var.model_uuid

  ingress = local.mesh.ingress
}

module "minio" {
  source     = "git::https://github.com/canonical/charmed-kubeflow-solutions//terraform/charms/minio?ref=0ca1448c50c016a2c3d4b14d84c5e04637c320df"
  model_uuid = var.model_uuid
}

module "mysql" {
  source = "git::https://github.com/canonical/mysql-k8s-operator//terraform?ref=58072079edc97bace08b6ff9c8f380b94867ebd4"
  model  = var.model_uuid

  app_name     = "mysql-db"
  channel      = "8.0/stable"
  config       = { profile-limit-memory = "2048" }
  storage_size = var.mysql_storage_size
}

module "katib" {
  source     = "git::https://github.com/canonical/charmed-kubeflow-solutions//terraform/components/katib?ref=0ca1448c50c016a2c3d4b14d84c5e04637c320df"
  model_uuid = var.model_uuid

  ingress         = local.mesh.ingress
  dashboard_links = local.dashboard_links
  mysql_database  = local.database
}

module "kfp" {
  source     = "git::https://github.com/canonical/charmed-kubeflow-solutions//terraform/components/kfp?ref=0ca1448c50c016a2c3d4b14d84c5e04637c320df"
  model_uuid = var.model_uuid

  ingress         = local.mesh.ingress
  dashboard_links = local.dashboard_links
  mysql_database  = local.database
  object_storage = {
    kind     = "endpoint"
    name     = module.minio.provides.object_storage.name
    endpoint = module.minio.provides.object_storage.endpoint
  }
}

module "notebooks" {
  source     = "git::https://github.com/canonical/charmed-kubeflow-solutions//terraform/components/notebooks?ref=0ca1448c50c016a2c3d4b14d84c5e04637c320df"
  model_uuid = var.model_uuid

  ingress         = local.mesh.ingress
  dashboard_links = local.dashboard_links
}

module "tensorboard" {
  source     = "git::https://github.com/canonical/charmed-kubeflow-solutions//terraform/components/tensorboard?ref=0ca1448c50c016a2c3d4b14d84c5e04637c320df"
  model_uuid = var.model_uuid

  ingress         = local.mesh.ingress
  gateway_info    = local.mesh.gateway_info
  dashboard_links = local.dashboard_links
}

module "kserve" {
  source     = "git::https://github.com/canonical/charmed-kubeflow-solutions//terraform/components/kserve?ref=0ca1448c50c016a2c3d4b14d84c5e04637c320df"
  model_uuid = var.model_uuid

  gateway_info      = local.mesh.gateway_info
  kserve_controller = { config = merge({ deployment-mode = "serverless" }, var.kserve_config) }
  knative_serving = {
    config = {
      "istio.gateway.name"      = "kubeflow-gateway"
      "istio.gateway.namespace" = "kubeflow"
    }
  }
}

module "training" {
  source     = "git::https://github.com/canonical/charmed-kubeflow-solutions//terraform/components/training?ref=0ca1448c50c016a2c3d4b14d84c5e04637c320df"
  model_uuid = var.model_uuid

  enable_v1       = true
  dashboard_links = local.dashboard_links
}
