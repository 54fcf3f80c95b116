"""A demo server: arithmetic. `python -m proxy.demo.calc`"""

import ast
import statistics
from collections.abc import Callable
from typing import Annotated, Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

server = MCPServer("calc", version="1.0.0", description="arithmetic and statistics")
_READ = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_OPERATORS: dict[type[ast.AST], Callable[[float, float], float]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


def value(node: ast.AST) -> float:
    """The number an expression stands for; raises ToolError for anything but numbers and + - * / // %."""
    match node:
        case ast.Expression(body):
            return value(body)
        case ast.Constant(int() | float() as number):
            return number
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](value(left), value(right))
        case ast.UnaryOp(ast.USub(), operand):
            return -value(operand)
        case _:
            raise ToolError(f"Only numbers, parentheses and + - * / // % are understood, not {ast.unparse(node)!r}")


@server.tool(annotations=_READ)
def evaluate(expression: Annotated[str, Field(description="Arithmetic, for example (2 + 3) * 4 / 7")]) -> float:
    """Compute an arithmetic expression."""
    try:
        return value(ast.parse(expression, mode="eval"))
    except (SyntaxError, ArithmeticError, RecursionError) as error:
        raise ToolError(f"{expression!r} cannot be computed: {error}") from error


@server.tool(annotations=_READ)
def describe_numbers(numbers: Annotated[list[float], Field(min_length=1)]) -> dict[str, Any]:
    """Count, sum, mean, median, smallest and largest of some numbers."""
    return {
        "count": len(numbers),
        "sum": sum(numbers),
        "mean": statistics.mean(numbers),
        "median": statistics.median(numbers),
        "smallest": min(numbers),
        "largest": max(numbers),
    }


if __name__ == "__main__":
    server.run()
