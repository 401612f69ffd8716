"""Inputs that must be refused, one table for the service and for files of the command line.

Rows are those of the project's table of bad inputs, decided in docs/errors.md; ``row`` is its number. ``document`` says
what the bytes claim to be. Each row makes its bytes when asked, since some are large.
"""

import json
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tests.helpers import service_documents as documents

__all__ = ["BAD_DOCUMENTS", "BAD_JSON", "MARKER", "BadInput", "DocumentName"]

DocumentName = Literal["profile", "cluster", "request"]
MARKER = "Zq9MarkerZq9"  # stands in refused values; no answer may repeat it


@dataclass(frozen=True)
class BadInput:
    """One input. ``file_code``: what a reader of files says where HTTP refuses by media type already."""

    row: int
    name: str
    document: DocumentName
    make: Callable[[], bytes]
    status: int
    code: str
    file_code: str = ""
    also: tuple[str, ...] = ()  # texts that the answer must hold: a pointer, a hint, a name

    @property
    def id(self) -> str:
        return f"{self.row}-{self.name}-{self.document}"

    @property
    def code_of_file(self) -> str:
        return self.file_code or self.code


_WHOLE: dict[DocumentName, Callable[[], dict[str, Any]]] = {
    "profile": documents.profile,
    "cluster": documents.cluster,
    "request": documents.request,
}
_COUNT: dict[DocumentName, str] = {  # a whole-number field of each document, as JSON pointer
    "profile": "/device/total_bytes",
    "cluster": "/node_groups/0/usable_bytes",
    "request": "/workload/global_batch_size",
}
_NAME: dict[DocumentName, str] = {
    "profile": "/device/kind",
    "cluster": "/node_groups/0/name",
    "request": "/profiles/0/device/kind",
}


def _text(value: object) -> bytes:
    return json.dumps(value).encode()


def _changed(document: DocumentName, changes: dict[str, object]) -> dict[str, Any]:
    """The whole document with the values at JSON pointers replaced; a value of ``...`` deletes."""
    found = _WHOLE[document]()
    for pointer, value in changes.items():
        *parents, last = pointer.split("/")[1:]
        place: Any = found
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        key = int(last) if isinstance(place, list) else last
        if value is ...:
            del place[key]
        else:
            place[key] = value
    return found


def _raw(document: DocumentName, pointer: str, text: str) -> bytes:
    """The document with JSON text at a pointer that no Python value writes."""
    return _text(_changed(document, {pointer: "@@"})).replace(b'"@@"', text.encode())


def _json(
    row: int, name: str, make: Callable[[DocumentName], bytes], status: int, code: str, file_code: str = ""
) -> Iterator[BadInput]:
    """The same fault of the bytes in each kind of document."""
    for document in _WHOLE:
        yield BadInput(row, name, document, lambda d=document: make(d), status, code, file_code)  # type: ignore[misc]


def _many_keys(document: DocumentName) -> bytes:
    return b"{" + b",".join(b'"%x":0' % number for number in range(700_000)) + b"}"


def _json_rows() -> Iterator[BadInput]:
    yield from _json(1, "empty", lambda d: b"", 400, "json_invalid")
    yield from _json(2, "truncated", lambda d: _text(_WHOLE[d]())[:-7], 400, "json_invalid")
    yield from _json(3, "garbage-after", lambda d: _text(_WHOLE[d]()) + b" {}", 400, "json_invalid")
    yield from _json(8, "deep-arrays", lambda d: b"[" * 100_000 + b"]" * 100_000, 400, "json_depth")
    yield from _json(8, "deep-objects", lambda d: b'{"a":' * 65 + b"0" + b"}" * 65, 400, "json_depth")
    yield from _json(9, "many-keys", _many_keys, 422, "too_many_items")
    same_length = b"{" + b",".join(b'"%020d":0' % number for number in range(20_000)) + b"}"
    yield from _json(10, "similar-keys", lambda d: same_length, 422, "too_many_items")
    yield from _json(11, "duplicate-keys", lambda d: b'{"schema":"x",' + _text(_WHOLE[d]())[1:], 422, "duplicate_key")
    for row, text in ((12, "NaN"), (13, "Infinity"), (13, "-Infinity"), (14, "1e999"), (14, "-1e999")):
        yield from _json(row, text, lambda d, t=text: _raw(d, _COUNT[d], t), 422, "not_finite")  # type: ignore[misc]
    yield from _json(15, "NaN-as-text", lambda d: _raw(d, _COUNT[d], '"NaN"'), 422, "type")
    yield from _json(16, "10^400", lambda d: _raw(d, _COUNT[d], "1" + "0" * 400), 422, "range")
    yield from _json(17, "5000-digits", lambda d: _raw(d, _COUNT[d], "7" * 5000), 422, "range")
    yield from _json(18, "2^53+1", lambda d: _raw(d, _COUNT[d], "9007199254740993"), 422, "range")
    yield from _json(18, "2^53+1-as-float", lambda d: _raw(d, _COUNT[d], "9007199254740993.0"), 422, "range")
    yield from _json(19, "surrogate-value", lambda d: _raw(d, _NAME[d], '"a\\ud800"'), 422, "unicode")
    yield from _json(19, "surrogate-key", lambda d: b'{"\\udfff":0,' + _text(_WHOLE[d]())[1:], 422, "unicode")
    yield from _json(20, "not-utf-8", lambda d: _raw(d, _NAME[d], '"@"').replace(b'"@"', b'"\xff"'), 400, "encoding")
    for name in ("utf-16", "utf-16-le", "utf-32", "utf-32-be"):
        yield from _json(
            21,
            name,
            lambda d, n=name: _text(_WHOLE[d]()).decode().encode(n),  # type: ignore[misc]
            415,
            "content_type",
            "json_invalid" if name in ("utf-16-le", "utf-32-be") else "encoding",
        )
    yield from _json(22, "byte-order-mark", lambda d: b"\xef\xbb\xbf" + _text(_WHOLE[d]()), 400, "encoding")


BAD_JSON: tuple[BadInput, ...] = tuple(_json_rows())


def _bad(
    row: int,
    name: str,
    document: DocumentName,
    changes: dict[str, object],
    code: str,
    also: tuple[str, ...] = (),
) -> BadInput:
    return BadInput(row, name, document, lambda: _text(_changed(document, changes)), 422, code, also=also)


def _content_rows() -> Iterator[BadInput]:
    for document, pointer in _NAME.items():
        characters = {"nul": "\0", "control": "\x07", "ansi": "\x1b[31m", "bidi": "\u202e"}
        for name, character in characters.items():
            yield _bad(23, name, document, {pointer: f"a{character}{MARKER}"}, "name", (pointer,))
        yield _bad(25, "1-mb-name", document, {pointer: MARKER * 90_000}, "limit", (pointer,))
        yield _bad(26, "unknown-field", document, {"/surprise": MARKER}, "unknown_field", ("/surprise",))
        yield _bad(37, "unknown-schema", document, {"/schema": f"{document}/999"}, "schema", ("supported",))
        yield _bad(37, "no-schema", document, {"/schema": ...}, "schema", ("supported",))
        yield _bad(37, "schema-of-wrong-type", document, {"/schema": 1}, "schema", ("supported",))
        yield _bad(37, "schema-of-another", document, {"/schema": MARKER}, "schema", ("supported",))
    for document, pointer in _COUNT.items():
        yield _bad(28, "null", document, {pointer: None}, "type", (pointer,))
        yield _bad(29, "true-for-a-number", document, {pointer: True}, "type", (pointer,))
    upper = documents.cluster()["node_groups"]
    yield _bad(27, "wrong-case", "cluster", {"/node_groups": ..., "/Node_Groups": upper}, "missing", ("lower case",))
    yield _bad(29, "1-for-a-boolean", "profile", {"/layers/0/causal": 1}, "type", ("/layers/0/causal",))
    yield _bad(29, "1-for-a-boolean", "request", {"/validate_only": 1}, "type", ("/validate_only",))
    yield from _name_rows()
    yield from _profile_rows()
    yield from _cluster_rows()
    yield from _request_rows()


def _name_rows() -> Iterator[BadInput]:
    """One name in two normal forms is one name."""
    composed = unicodedata.normalize("NFC", "caf\u00e9")
    twins = {"/layers/0/id": composed, "/layers/1/id": unicodedata.normalize("NFD", composed)}
    yield _bad(24, "nfc-and-nfd", "profile", twins, "duplicate_id")
    groups = [{**documents.cluster(1)["node_groups"][0], "name": name} for name in twins.values()]
    yield _bad(24, "nfc-and-nfd", "cluster", {"/node_groups": groups, "/links": []}, "duplicate_id")


_TIME = "/measurements/0/points/0/forward"
_SAVED = "/measurements/0/points/0/saved_bytes"


def _times(value: object) -> dict[str, object]:
    names = ("min_ns", "p10_ns", "p25_ns", "median_ns", "mean_ns", "p90_ns")
    return dict.fromkeys((f"{_TIME}/{name}" for name in names), value)


def _all_zero() -> dict[str, object]:
    return {
        f"/measurements/{kind}/points/{point}/{operation}/{name}": 0
        for kind in range(2)
        for point in range(3)
        for operation in ("forward", "backward")
        for name in ("min_ns", "p10_ns", "p25_ns", "median_ns", "mean_ns", "p90_ns")
    }


def _profile_rows() -> Iterator[BadInput]:
    yield _bad(38, "no-layers", "profile", {"/layers": [], "/measurements": []}, "empty_model")
    yield _bad(39, "negative-time", "profile", _times(-1), "range", (_TIME,))
    yield _bad(40, "all-zero", "profile", _all_zero(), "all_zero")
    yield BadInput(41, "minus-zero", "profile", lambda: _raw("profile", _SAVED, "-0.0"), 422, "type")
    yield BadInput(42, "5e-324", "profile", lambda: _raw("profile", f"{_TIME}/min_ns", "5e-324"), 422, "type")
    yield BadInput(42, "1e300", "profile", lambda: _raw("profile", f"{_TIME}/p90_ns", "1e300"), 422, "range")
    yield _bad(42, "above-10^15-ns", "profile", {f"{_TIME}/p90_ns": 10**15 + 1}, "range", (f"{_TIME}/p90_ns",))
    # 20,000 FLOP x 64 tokens in 1 ms instead of 1,000,000 ns: written as ms it is 1 ns, 10^6 times too fast
    yield _bad(43, "milliseconds", "profile", _times(1), "implausible_unit")
    yield _bad(43, "picoseconds", "profile", _times(10**15), "implausible_unit")
    yield BadInput(44, "gib", "profile", lambda: _raw("profile", "/device/usable_bytes", "6.5"), 422, "type")
    yield _bad(45, "negative-bytes", "profile", {_SAVED: -1}, "range", (_SAVED,))
    yield BadInput(45, "fractional-bytes", "profile", lambda: _raw("profile", _SAVED, "10000.5"), 422, "type")
    yield _bad(46, "2^63-bytes", "profile", {"/layers/0/param_bytes": 2**63}, "range")
    yield _bad(47, "duplicate-layer", "profile", {"/layers/1/id": "layers.0"}, "duplicate_id", ("layers.0",))
    yield _bad(53, "10^6-layers", "profile", {"/layers": [0] * 10**6}, "limit", ("/layers",))
    yield _bad(54, "unmeasured-layer", "profile", {"/measurements/1": ...}, "profile_incomplete", ("head",))
    extra = {**documents.profile()["measurements"][0], "fingerprint": "d" * 64}
    both = [*documents.profile()["measurements"], extra]
    yield _bad(55, "measurement-of-no-layer", "profile", {"/measurements": both}, "profile_extra_layer")
    yield _bad(60, "memory-falls", "profile", {"/measurements/0/points/2/saved_bytes": 5_000}, "non_monotone")
    tied = [{"layers": [0, 9], "parameter_names": ["weight"]}]
    yield _bad(61, "tied-to-no-layer", "profile", {"/model/tied": tied}, "dangling_edge")
    yield _bad(84, "micro-batch-0", "profile", {"/measurements/0/points/0/micro_batch_size": 0}, "range")


def _group(**changes: object) -> dict[str, object]:
    return {f"/node_groups/0/{name}": value for name, value in changes.items()}


def _two_groups(**link: object) -> dict[str, Any]:
    """Two nodes of one rank; ``link`` changes the one between them."""
    found = documents.mixed_cluster("cpu-small", "cpu-small")
    found["links"][0].update(link)
    return found


def _cluster_bad(row: int, name: str, cluster: dict[str, Any], code: str, also: tuple[str, ...] = ()) -> BadInput:
    return BadInput(row, name, "cluster", lambda: _text(cluster), 422, code, also=also)


def _cluster_rows() -> Iterator[BadInput]:
    yield _bad(65, "no-node-groups", "cluster", {"/node_groups": [], "/links": []}, "empty_cluster")
    yield _bad(65, "no-nodes", "cluster", _group(num_nodes=0), "range", ("/node_groups/0/num_nodes",))
    yield _bad(66, "10^9-nodes", "cluster", _group(num_nodes=10**9), "limit")
    yield _bad(66, "10^9-ranks", "cluster", _group(ranks_per_node=10**9), "limit")
    yield _bad(67, "memory-0", "cluster", _group(usable_bytes=0), "range", ("/node_groups/0/usable_bytes",))
    yield _bad(67, "memory-negative", "cluster", _group(usable_bytes=-5), "range")
    yield _bad(68, "bandwidth-0", "cluster", {"/links/0/bandwidth_bytes_per_s": 0}, "unreachable")
    yield _cluster_bad(68, "bandwidth-0-between", _two_groups(bandwidth_bytes_per_s=0), "unreachable")
    yield _bad(69, "negative-latency", "cluster", {"/links/0/latency_ns": -1}, "range", ("/links/0/latency_ns",))
    apart = {**_two_groups(), "links": []}
    yield _cluster_bad(71, "disconnected", apart, "disconnected_cluster", ("[1, 1]",))
    groups = [*documents.cluster(1)["node_groups"] * 2]
    yield _bad(73, "duplicate-group", "cluster", {"/node_groups": groups, "/links": []}, "duplicate_id")
    yield _bad(74, "unknown-end", "cluster", {"/links/0/target": "nowhere"}, "dangling_edge")
    alone = {**documents.cluster(1), "links": documents.cluster(2)["links"]}
    yield _cluster_bad(75, "rank-with-itself", alone, "self_link")
    yield _bad(76, "missing-link", "cluster", {"/links": []}, "missing_link")


def _request_bad(row: int, name: str, changes: dict[str, Any], code: str, also: tuple[str, ...] = ()) -> BadInput:
    return BadInput(row, name, "request", lambda: _text(documents.request(**changes)), 422, code, also=also)


def _other_layers(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> dict[str, Any]:
    """A request for two device kinds of whose profiles the second has other layers."""
    second = documents.profile("cpu-slow", time_ns=2_000_000)
    second["layers"] = change(second["layers"])
    known = {layer["fingerprint"] for layer in second["layers"]}
    second["measurements"] = [one for one in second["measurements"] if one["fingerprint"] in known]
    cluster = documents.mixed_cluster("cpu-small", "cpu-slow")
    return {"profiles": [documents.profile(), second], "cluster": cluster}


def _request_rows() -> Iterator[BadInput]:
    fewer = _other_layers(lambda layers: layers[:2])
    yield _request_bad(54, "layer-missing", fewer, "profile_incomplete", ("head", "/profiles/1"))
    more = _other_layers(lambda layers: [*layers, {**layers[0], "id": "layers.9"}])
    yield _request_bad(55, "layer-too-many", more, "profile_extra_layer", ("layers.9", "/profiles/1"))
    other = {"profiles": [documents.profile("gpu-x")]}
    yield _request_bad(57, "profile-of-no-kind", other, "no_profile_for_device", ("/profiles/0/device/kind",))
    unprofiled = {"cluster": documents.mixed_cluster("cpu-small", "gpu-y")}
    yield _request_bad(57, "kind-without-profile", unprofiled, "no_profile_for_device", ("/cluster/node_groups/1",))
    for size in (0, -1):
        changes = {"constraints": {"micro_batch_sizes": [size]}}
        yield _request_bad(84, f"micro-batch-{size}", changes, "range", ("/constraints/micro_batch_sizes/0",))
    for limit_ns in (0, -1, 10**18, 10**9 - 1, 3_600 * 10**9 + 1):
        also = () if limit_ns == 10**18 else ("/time_limit_ns",)
        yield _request_bad(88, f"time-limit-{limit_ns}", {"time_limit_ns": limit_ns}, "range", also)
    yield BadInput(88, "time-limit-NaN", "request", lambda: _raw("request", "/time_limit_ns", "NaN"), 422, "not_finite")


BAD_DOCUMENTS: tuple[BadInput, ...] = tuple(_content_rows())
