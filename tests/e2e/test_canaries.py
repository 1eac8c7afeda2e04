"""S070, S072, P11: no secret on any surface, and nothing that others may open; one wire of
`lab.campaigns.canaries`.
"""

from lab.campaigns.canaries import run_wire


def test_S070_S072_no_surface_holds_a_secret() -> None:
    searched, faults = run_wire("anthropic")
    assert faults == []
    assert searched >= 20
