"""The subagents of one run: for each a tally and a reply that grows, found by its session."""

from longrein.agent import OfChild
from longrein.context import State
from longrein.events import ChildStarted
from longrein.frontends.headless.partial import Partial
from longrein.frontends.headless.tally import Child, Tally


class Company:
    """Everybody below one session."""

    def __init__(self, root: Tally, state: State) -> None:
        """`state` is that of the session as the run begins: what was started before is known from it."""
        self._root = root
        self._tallies: dict[str, Tally] = {}
        self._partials: dict[str, Partial] = {}
        for child, now in state.children.items():
            root.children[child] = Child(f"a{now.seq}", now.started.call, now.started)

    def tally(self, heard: OfChild) -> Tally:
        """That of the subagent which was heard."""
        found = self._tallies.get(heard.child)
        if found is None:
            child = self._known(heard)
            found = self._tallies[heard.child] = Tally(heard.child, child.started.model, self._root, child)
        return found

    def partial(self, heard: OfChild) -> Partial:
        """Its reply while it grows."""
        return self._partials.setdefault(heard.child, Partial())

    def _known(self, heard: OfChild) -> Child:
        """What its parent told of it; of one whose parent's word was not heard, the call that is known above it."""
        for tally in (self._root, *self._tallies.values()):
            if heard.child in tally.children:
                return tally.children[heard.child]
        top = heard.label.partition(".")[0]
        above = next((child for child in self._root.children.values() if child.label == top), None)
        return Child(heard.label, above.call if above else "", ChildStarted(heard.child, heard.kind))
