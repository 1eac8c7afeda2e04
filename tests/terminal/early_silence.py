"""`longrein` whose terminal tells of a silent provider after one second instead of five."""

import runpy

from longrein.frontends.terminal import live_area as provider_trouble

provider_trouble.SILENT_S = 1.0
runpy.run_module("longrein", run_name="__main__", alter_sys=True)
