"""`longrein` that stops once its first row stands, until the file `go` is in the project."""

import os
import runpy
import time

from longrein.frontends import first_frame

draw = first_frame.draw


def held_draw() -> None:
    draw()
    while not os.path.exists("go"):
        time.sleep(0.01)


first_frame.draw = held_draw
runpy.run_module("longrein", run_name="__main__", alter_sys=True)
