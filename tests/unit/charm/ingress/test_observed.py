import pytest

from istio_integrator.ingress import observed


@pytest.mark.parametrize(
    ("balancers", "want"),
    [
        ([{"ip": "10.64.140.43"}], "10.64.140.43"),
        ([{"hostname": "lb.example.com", "ip": "10.0.0.1"}], "lb.example.com"),
        ([{"ip": "fd00::1"}, {"ip": "10.0.0.2"}], "fd00::1"),
        ([{"hostname": "a b\n"}], ""),
        ([{"hostname": "x" * 254}], ""),
        ([{"hostname": 5}], ""),
        (["10.0.0.1"], ""),
        ("10.0.0.1", ""),
        (None, ""),
    ],
)
def test_address_of_a_load_balancer_is_read_where_it_is_one(balancers, want):
    assert observed.address({"status": {"loadBalancer": {"ingress": balancers}}}) == want


def test_names_for_people_are_few():
    assert observed.listed("dcba") == "a, b, c, d"
    assert observed.listed("fedcba") == "a, b, c, d and 2 more"


@pytest.mark.parametrize("selector", [None, [], {"a": 1}, {str(n): "x" for n in range(65)}])
def test_service_whose_selector_can_not_be_meant_selects_nothing(selector):
    assert observed.selector_of({"spec": {"selector": selector}}) == {}
    assert observed.selector_of(None) == {}
