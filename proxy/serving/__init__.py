"""How clients reach the proxy: stdio, or HTTP (Streamable HTTP and SSE)."""
