"""What the words of a query tell."""

from __future__ import annotations

import pytest

from barnabas.pipelines.spec.sql import SqlProblem, examine


@pytest.mark.parametrize(
    ("sql", "reads"),
    [
        ("SELECT * FROM orders", ["orders"]),
        ("select o.id from Orders o join customers as c on o.customer = c.id", ["Orders", "customers"]),
        ("SELECT * FROM a, b WHERE f(a.x, b.y) IN (1, 2)", ["a", "b"]),
        ("WITH late AS (SELECT * FROM orders), x (a, b) AS (SELECT 1, 2) SELECT * FROM late JOIN x", ["orders"]),
        ("SELECT * FROM (SELECT * FROM deep) t LEFT SEMI JOIN (a JOIN b ON true) ON true", ["deep", "a", "b"]),
        ("SELECT EXTRACT(YEAR FROM at), trim(BOTH 'x' FROM name) FROM orders", ["orders"]),
        ("SELECT * FROM orders WHERE a IS NOT DISTINCT FROM b AND c IS DISTINCT FROM d", ["orders"]),
        ("SELECT * FROM orders LATERAL VIEW explode(items) t AS item, place WHERE id IN (SELECT id FROM seen)",
         ["orders", "seen"]),
        ("SELECT * FROM `my view` -- FROM nobody\n UNION ALL SELECT 'FROM nothing' /* JOIN no */ FROM db.t",
         ["my view", "db.t"]),
        ("SELECT * FROM range(10) CROSS JOIN orders", ["orders"]),
        ("FROM orders |> WHERE amount > 1 |> JOIN customers USING (id)", ["orders", "customers"]),
        ("FROM orders |> EXTEND a + 1 AS b, c AS d |> SET a = b, d = e |> DROP b, d", ["orders"]),
        ("FROM orders |> UNION ALL TABLE returns |> UNION ALL (TABLE seen)", ["orders", "returns", "seen"]),
        ("TABLE orders", ["orders"]),
        ("SELECT DISTINCT table FROM orders WHERE table.name > 'x'", ["orders"]),
        ("SELECT * FROM orders JOIN VALUES ('PT', true), ('NL', false) AS c(country, eu) USING (country)", ["orders"]),
        ("SELECT * FROM orders, (VALUES ('PT', true), ('NL', false)) AS c(country, eu), seen", ["orders", "seen"]),
        ("SELECT * FROM (WITH x AS (SELECT 1), y AS (SELECT 2) SELECT * FROM x, y), orders", ["orders"]),
        (r"SELECT split(path, r'\') FROM orders WHERE id IN (SELECT id FROM seen) AND x <> R'\'", ["orders", "seen"]),
        (r'SELECT r"\" FROM orders WHERE id IN (SELECT id FROM seen) AND x <> R"\"', ["orders", "seen"]),
        ("VALUES (1, 2)", []),
        ("WITH e AS (SELECT * FROM events) SELECT * FROM e a JOIN e b", ["events", "events"]),
        ("WITH e AS (SELECT * FROM x), f AS (SELECT * FROM E, y) SELECT * FROM f UNION ALL SELECT * FROM f JOIN e",
         ["x", "y", "x", "y", "x"]),
        ("WITH e AS (WITH d AS (SELECT * FROM deep) SELECT * FROM d) SELECT * FROM e, e", ["deep", "deep"]),
        ("WITH orders AS (SELECT * FROM orders WHERE x) SELECT * FROM orders", ["orders"]),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r", []),
        ("WITH unused AS (SELECT * FROM a) SELECT * FROM b", ["b", "a"]),
    ],
)  # fmt: skip
def test_a_query_reads_what_stands_where_a_relation_stands(sql: str, reads: list[str]) -> None:
    assert list(examine(sql).reads) == reads


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT window.start, sum(x) FROM t GROUP BY window(at, '1 minute')", "GROUP BY"),
        ("SELECT k FROM t GROUP BY k", "GROUP BY"),
        ("SELECT DISTINCT k FROM t", "DISTINCT"),
        ("SELECT max(x) FROM t", "max()"),
        ("SELECT * FROM t LIMIT 5", "LIMIT"),
        ("SELECT a FROM t UNION SELECT a FROM u", "UNION without ALL"),
        ("SELECT a FROM t EXCEPT SELECT a FROM u", "EXCEPT"),
        ("SELECT * FROM t TABLESAMPLE (5 ROWS)", "TABLESAMPLE"),
        ("SELECT * FROM t PIVOT (try_sum(x) FOR k IN ('a', 'b'))", "PIVOT"),
        (r"SELECT k FROM t WHERE x = r'\' GROUP BY k HAVING y <> r'\'", "GROUP BY"),
        ("SELECT * FROM t UNPIVOT (x FOR k IN (a, b))", None),
        ("SELECT * EXCEPT (secret) FROM t", None),
        ("FROM t SELECT * LIMIT 5", "LIMIT"),
        ("FROM t SELECT * EXCEPT (SELECT * FROM u)", "EXCEPT"),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", None),
        ("SELECT 'GROUP BY', `limit` FROM t WHERE a IS DISTINCT FROM b", None),
    ],
)
def test_a_query_keeps_state_by_its_words(sql: str, words: str | None) -> None:
    assert examine(sql).keeps_state == words


def test_relations_side_by_side_are_joined_and_those_of_a_union_are_not() -> None:
    assert examine("SELECT * FROM a, b").joins
    assert examine("SELECT * FROM a JOIN b").joins
    assert not examine("SELECT * FROM a UNION ALL SELECT * FROM b").joins
    assert examine("SELECT * FROM a WHERE x IN (SELECT 1 UNION ALL SELECT x FROM b)").joins
    assert not examine("SELECT * FROM a WHERE x IN (1, 2) UNION ALL SELECT * FROM b").joins
    assert examine("WITH two AS (SELECT 1 UNION ALL SELECT 2) SELECT * FROM a, two, b").joins
    assert examine("SELECT * FROM (SELECT x FROM a), (SELECT 1 UNION ALL SELECT 2), (SELECT y FROM b)").joins
    assert not examine("FROM a |> SELECT f(x, y), y |> UNION ALL TABLE b").joins


@pytest.mark.parametrize(
    ("sql", "line", "text"),
    [
        ("", 0, "empty"),
        ("-- nothing\n", 0, "empty"),
        ("INSERT INTO a SELECT 1", 0, "begins with INSERT"),
        ("SELECT f(a,\n b FROM c", 0, "( is opened here and never closed"),
        ("SELECT a\nFROM b)", 1, ") closes what was not opened"),
        ("SELECT a[1)\nFROM b", 0, ") closes what was not opened"),
        ("SELECT a,\n 'open\nFROM b", 1, "' quote is opened here and never closed"),
        ("SELECT a /* open\nFROM b", 0, "comment is opened here and never closed"),
        ("SELECT 1;\nSELECT 2", 0, "one query"),
    ],
)
def test_what_is_plainly_wrong_is_told_with_its_line(sql: str, line: int, text: str) -> None:
    with pytest.raises(SqlProblem) as caught:
        examine(sql)
    assert caught.value.line == line
    assert text in str(caught.value)
