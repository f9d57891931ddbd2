output "app_name" {
  description = "Name of the application."
  value       = juju_application.istio_integrator.name
}

output "provides" {
  description = "Endpoints that other applications integrate with."
  value = {
    gateway_info                        = "gateway-info"
    gateway_metadata                    = "gateway-metadata"
    grafana_dashboard                   = "grafana-dashboard"
    ingress                             = "ingress"
    ingress_auth                        = "ingress-auth"
    istio_ingress_route                 = "istio-ingress-route"
    istio_ingress_route_unauthenticated = "istio-ingress-route-unauthenticated"
    istio_pilot                         = "istio-pilot"
    metrics_endpoint                    = "metrics-endpoint"
    service_mesh                        = "service-mesh"
  }
}

output "requires" {
  description = "Endpoints that need another application."
  value = {
    certificates    = "certificates"
    forward_auth    = "forward-auth"
    istio_metadata  = "istio-metadata"
    logging         = "logging"
    receive_ca_cert = "receive-ca-cert"
    tracing         = "tracing"
  }
}
