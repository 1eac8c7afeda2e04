"""Price tables, relative to one uncached input token."""

from dataclasses import dataclass

from longrein_context import Price


@dataclass(frozen=True)
class PriceTable:
    """Prices of a provider; `dollars` is the price of a million uncached input tokens."""

    read: float
    write: float
    output: float
    dollars: float

    def cost(self, prompt: int, cached: int, output: int) -> float:
        """Return the cost of a request in uncached input tokens. All that was not cached is
        written to the cache.
        """
        return cached * self.read + (prompt - cached) * self.write + output * self.output

    @property
    def price(self) -> Price:
        """The table as longrein's engine takes it."""
        return Price(
            self.dollars,
            self.dollars * self.output,
            self.dollars * self.read,
            self.dollars * self.write,
        )


TABLES = {
    "openai 10 %": PriceTable(0.1, 1.0, 8.0, 1.25),
    "openai 50 %": PriceTable(0.5, 1.0, 4.0, 2.5),
    "anthropic": PriceTable(0.1, 1.25, 5.0, 3.0),
    "deepseek": PriceTable(0.1, 1.0, 1.5, 0.28),
}
