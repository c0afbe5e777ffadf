"""Element access for the innermost loops.

Numba lets positions count from the end and so looks at the sign of each; these do not.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from rowgrad._kernels.compile import inline, inline_late


@inline
def known(number, usual):
    """`number`, or, where it is None, `usual`: a constant for the kernel that is compiled for None."""
    if number is None:
        return usual
    return number


def _pointer(context: Any, builder: Any, array: Any, value: Any, position: Any) -> Any:
    return builder.gep(context.make_array(array)(context, builder, value).data, [position])


@intrinsic
def peek(typingctx: Any, array: Any, position: Any) -> Any:
    """array[position]; integers come as int64, so that ids of both types take the same way."""
    wide = types.int64 if array.dtype == types.int32 else array.dtype

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = context.unpack_value(builder, array.dtype, _pointer(context, builder, array, *args))
        return context.cast(builder, value, array.dtype, wide)

    return wide(array, types.intp), codegen


@intrinsic
def peek_bounded(typingctx: Any, array: Any, position: Any, limit: Any) -> Any:
    """The id at `position` if it is in [0, limit), else the last one that is.

    Another thread may write to a caller's ids between the check and the use, so whatever is used as an address is
    bounded after it was read, not only before.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = context.unpack_value(builder, array.dtype, _pointer(context, builder, array, *args[:2]))
        value = context.cast(builder, value, array.dtype, types.int64)
        last = builder.sub(args[2], ir.IntType(64)(1))
        return builder.select(builder.icmp_unsigned("<", value, last), value, last)

    return types.int64(array, types.intp, types.int64), codegen


@intrinsic
def array_at(typingctx: Any, where: Any, like: Any) -> Any:
    """An array as it is; or what is at an address, as an array of the type of `like`, for the functions here only."""
    array = where if isinstance(where, types.Array) else types.Array(like.dtype, 1, "C")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if isinstance(where, types.Array):
            return impl_ret_borrowed(context, builder, array, args[0])
        made = context.make_array(array)(context, builder)
        made.data = builder.inttoptr(args[0], made.data.type)
        return made._getvalue()

    return array(where, like), codegen


@intrinsic
def poke(typingctx: Any, array: Any, position: Any, value: Any) -> Any:
    """array[position] = value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, array, args[0], args[1])
        context.pack_value(builder, array.dtype, context.cast(builder, args[2], value, array.dtype), pointer)
        return context.get_dummy_value()

    return types.void(array, types.intp, value), codegen


@intrinsic
def prefetch(typingctx: Any, array: Any, position: Any) -> Any:
    """Have the cache line of array[position] fetched; the position may be anything."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        pointer = builder.bitcast(_pointer(context, builder, array, *args), byte)
        builder.call(function, [pointer, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


@intrinsic
def equal_bytes(typingctx: Any, array: Any, value: Any) -> Any:
    """A bit for each of the first 64 bytes of an array of bytes: whether it is `value`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), 64)
        found = builder.load(
            builder.bitcast(_pointer(context, builder, array, args[0], ir.IntType(64)(0)), vector.as_pointer()), align=1
        )
        wanted = builder.insert_element(
            ir.Constant(vector, ir.Undefined), builder.trunc(args[1], ir.IntType(8)), ir.IntType(32)(0)
        )
        wanted = builder.shuffle_vector(wanted, wanted, ir.Constant(ir.VectorType(ir.IntType(32), 64), None))
        return builder.bitcast(builder.icmp_unsigned("==", found, wanted), ir.IntType(64))

    return types.uint64(array, types.int64), codegen


@intrinsic
def lowest_bit(typingctx: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; one must be."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.int64(types.uint64), codegen


@inline_late
def fill_range(array, first, last, value):
    """array[first:last] = value; both positions must be in the array. Numba's slices take far longer to compile."""
    for i in range(first, last):
        poke(array, i, value)
