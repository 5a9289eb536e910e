import json
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelgym_env.evaluation.buffers import (
    ALIGN,
    Buffer,
    TreeError,
    build,
    build_plain,
    describe,
    describe_plain,
    is_description,
    leaves,
    ordered_keys,
    skeleton,
)

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
tensors = st.builds(
    lambda shape, dtype: (
        (torch.arange(max(1, torch.Size(shape).numel())) % 2).to(dtype)[: torch.Size(shape).numel()].reshape(shape)
    ),
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(DTYPES),
)
trees = st.recursive(
    tensors | st.none() | st.integers(-5, 5) | st.floats(allow_nan=False) | st.text(max_size=4) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def _sorted(node):
    return [node[key] for key in ordered_keys(node)]


def _equal(one, two):
    if isinstance(one, torch.Tensor):
        return isinstance(two, torch.Tensor) and one.dtype == two.dtype and torch.equal(one, two)
    if isinstance(one, dict):
        return set(one) == set(two) and all(_equal(one[key], two[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(two) and len(one) == len(two) and all(map(_equal, one, two))
    return type(one) is type(two) and one == two


def _collect(node, found):
    if isinstance(node, torch.Tensor):
        found.append(node)
    elif isinstance(node, dict):
        for item in _sorted(node):
            _collect(item, found)
    elif isinstance(node, (list, tuple)):
        for item in node:
            _collect(item, found)
    return found


@given(trees)
def test_a_tree_goes_through_a_shared_buffer(tree):
    shape, size = describe(tree, dense=True)
    assert is_description(shape)
    buffer = Buffer.create(size, "cpu")
    message, (fd,) = buffer.share()
    twin = Buffer.attach(message["size"], "cpu", fd=os.dup(fd))
    targets = [buffer.tensor(leaf) for _, leaf in leaves(shape) if leaf["t"] == "tensor"]
    for target, source in zip(targets, _collect(tree, []), strict=True):
        target.copy_(source)
    assert _equal(tree, build(shape, twin.tensor))
    buffer.close()


def test_the_other_side_sees_a_rewrite_in_the_same_object():
    buffer = Buffer.create(64, "cpu")
    shape, _ = describe([torch.zeros(4)], dense=False)
    twin = Buffer.attach(buffer.size, "cpu", fd=os.dup(buffer.share()[1][0]))
    (seen,) = build(shape, twin.tensor)
    pointer, version = seen.data_ptr(), seen._version
    buffer.tensor(leaves(shape)[0][1]).copy_(torch.arange(4.0))
    assert seen.tolist() == [0, 1, 2, 3]
    assert (seen.data_ptr(), seen._version) == (pointer, version)


def test_strides_of_inputs_are_kept():
    base = torch.arange(12.0).reshape(3, 4)
    for view in (
        base.t(),
        base[:, ::2],
        base[1].expand(5, 4),
        torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ):
        shape, size = describe([view], dense=False)
        buffer = Buffer.create(size, "cpu")
        (made,) = build(shape, buffer.tensor)
        assert (made.shape, made.stride()) == (view.shape, view.stride())


def test_offsets_are_aligned_and_do_not_overlap():
    shape, size = describe([torch.zeros(3), torch.zeros(5), torch.zeros(0), torch.zeros(1)], dense=False)
    offsets = [leaf["offset"] for _, leaf in leaves(shape)]
    assert all(offset % ALIGN == 0 for offset in offsets)
    assert offsets == [0, ALIGN, 2 * ALIGN, 2 * ALIGN]
    assert size == 3 * ALIGN


class _Lazy(torch.Tensor):
    pass


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "object"),
        (torch.zeros(2).as_subclass(_Lazy), "_Lazy"),
        (torch.zeros(2, 2).to_sparse(), "layout"),
        ({1.5: 1}, "keys"),
        ([0] * 5000, "1024"),
    ],
)
def test_what_cannot_be_described_is_said(value, said):
    with pytest.raises(TreeError, match=said):
        describe(value, dense=True)


def test_a_deep_tree_is_refused():
    tree: list = []
    for _ in range(50):
        tree = [tree]
    with pytest.raises(TreeError, match="levels"):
        describe(tree, dense=True)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"t": "tensor"},
        {"t": "tensor", "dtype": "float33", "shape": []},
        {"t": "list", "items": [3]},
        {"t": "dict", "keys": [1], "items": []},
        {"t": "value", "value": {}},
        {"t": "tensor", "dtype": "float32", "shape": [1.5]},
    ],
)
def test_untrusted_descriptions_are_checked(data):
    assert not is_description(data)


@given(trees)
def test_constructor_arguments_go_through_json(tree):
    text = json.dumps(describe_plain(tree))
    assert _equal(tree, build_plain(json.loads(text)))


@pytest.mark.parametrize("value", [torch.float16, torch.device("cpu"), 1 + 2j, (1, [2, {"a": (3,), 4: None}])])
def test_constructor_arguments_of_other_kinds(value):
    assert build_plain(describe_plain(value)) == value


def test_a_large_tensor_is_no_constructor_argument():
    with pytest.raises(TreeError, match="bytes"):
        describe_plain(torch.zeros(1 << 20))


def test_dicts_have_no_order_in_outputs_and_keep_theirs_in_arguments():
    one, two = {"b": torch.zeros(2), "a": torch.zeros(3)}, {"a": torch.zeros(3), "b": torch.zeros(2)}
    assert describe(one, dense=True) == describe(two, dense=True)
    assert list(build(describe([one], dense=False)[0], lambda leaf: None)[0]) == ["b", "a"]


def test_a_skeleton_tells_containers_apart():
    kinds = [(torch.zeros(2),), [torch.zeros(2)], {0: torch.zeros(2)}, torch.zeros(2)]
    assert len({str(skeleton(describe(kind, dense=True)[0])) for kind in kinds}) == 4


@pytest.mark.parametrize("value", [10**5000, -(2**63) - 1, "x" * 5000], ids=["huge", "low", "long"])
def test_values_without_bound_are_refused(value):
    with pytest.raises(TreeError):
        describe(value, dense=True)


def test_a_shared_buffer_cannot_be_shrunk():
    buffer = Buffer.create(4096, "cpu")
    with pytest.raises(PermissionError):
        os.ftruncate(buffer.share()[1][0], 0)
    buffer.close()
