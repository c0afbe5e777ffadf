"""What is public: the names without an underscore, and no others."""

import pkgutil

import rowgrad
from rowgrad._cli import app


def test_the_benchmark_is_not_part_of_the_package() -> None:
    assert "bench" not in {module.name for module in pkgutil.iter_modules(rowgrad.__path__)}
    assert "bench" not in {command.name for command in app.registered_commands}
