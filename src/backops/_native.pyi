from typing import Any, TypeAlias

_Ints: TypeAlias = tuple[int, ...]
# Output shape, kernel_size, stride, padding, divisor_override.
_PoolGeometry: TypeAlias = tuple[_Ints, _Ints, _Ints, _Ints, int]
# Output shape, stride, padding before, dilation, groups, output_padding, padding after.
_ConvGeometry: TypeAlias = tuple[_Ints, _Ints, _Ints, _Ints, int, _Ints, _Ints]

__version__: str

def read_environment() -> None: ...
def isa() -> str: ...
def isa_levels() -> list[str]: ...
def set_num_threads(n: int) -> None: ...
def get_num_threads() -> int: ...
def set_deterministic(flag: bool) -> None: ...
def fill_and_copy(
    target: int, target_bytes: int, source: int, source_bytes: int, threads: int, /
) -> None: ...
def address_of_memory(object: Any, argument: str, bytes: int) -> int: ...
def address_of_tensor(object: Any, argument: str, writes: bool) -> int: ...
def span_of_tensor(object: Any, argument: str) -> tuple[int, int, int]: ...
def avg_pool_backward(
    function: str,
    rank: int,
    grad_output: Any,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    divisor_override: Any,
    precision: Any,
    out: Any,
    threads: int | None = ...,
) -> Any: ...
def adaptive_avg_pool_backward(
    function: str,
    rank: int,
    grad_output: Any,
    input: Any,
    out: Any,
    threads: int | None = ...,
) -> Any: ...
def avg_pool(
    function: str,
    rank: int,
    input: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    divisor_override: Any,
    precision: Any,
    out: Any,
    threads: int | None = ...,
) -> Any: ...
def adaptive_avg_pool(
    function: str,
    rank: int,
    input: Any,
    output_size: Any,
    out: Any,
    threads: int | None = ...,
) -> Any: ...
def plan_avg_pool_backward(
    function: str,
    rank: int,
    input_shape: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    divisor_override: Any,
    precision: Any,
    dtype: Any,
) -> PoolPlan: ...
def plan_adaptive_avg_pool_backward(
    function: str, rank: int, input_shape: Any, output_size: Any, dtype: Any
) -> PoolPlan: ...
def plan_avg_pool(
    function: str,
    rank: int,
    input_shape: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    divisor_override: Any,
    precision: Any,
    dtype: Any,
) -> PoolForwardPlan: ...
def plan_adaptive_avg_pool(
    function: str, rank: int, input_shape: Any, output_size: Any, dtype: Any
) -> PoolForwardPlan: ...
def avg_pool_geometry(
    function: str,
    rank: int,
    input_shape: Any,
    kernel_size: Any,
    stride: Any,
    padding: Any,
    ceil_mode: Any,
    count_include_pad: Any,
    divisor_override: Any,
    dtype: Any,
) -> _PoolGeometry: ...
def adaptive_avg_pool_geometry(
    function: str, rank: int, input_shape: Any, output_size: Any, dtype: Any
) -> _PoolGeometry: ...

class PoolPlan:
    @property
    def workspace_size(self) -> int: ...
    @property
    def kernel(self) -> str: ...
    @property
    def why(self) -> str: ...
    def __call__(self, grad_output: Any, out: Any = ..., workspace: Any = ...) -> Any: ...

class PoolForwardPlan:
    @property
    def workspace_size(self) -> int: ...
    @property
    def kernel(self) -> str: ...
    @property
    def why(self) -> str: ...
    def __call__(self, input: Any, out: Any = ..., workspace: Any = ...) -> Any: ...

def conv(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    precision: Any,
    out: Any,
    threads: int | None = ...,
) -> Any: ...
def conv_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    output_mask: Any,
    precision: Any,
    out: Any,
    threads: int | None = ...,
) -> tuple[Any, Any, Any]: ...
def conv_transpose(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: Any,
    precision: Any,
    out: Any,
    threads: int | None = ...,
) -> Any: ...
def conv_transpose_backward(
    grad_output: Any,
    input: Any,
    weight: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: Any,
    output_mask: Any,
    precision: Any,
    out: Any,
    threads: int | None = ...,
) -> tuple[Any, Any, Any]: ...
def plan_conv_forward(
    operator: str,
    input_shape: Any,
    weight_shape: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    dilation: Any,
    groups: Any,
    precision: Any,
    dtype: Any,
) -> ConvForwardPlan: ...
def plan_conv(
    input_shape: Any,
    weight_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    output_mask: Any,
    precision: Any,
    dtype: Any,
    operator: str = ...,
    output_padding: Any = ...,
) -> ConvBackwardPlan: ...
def capabilities() -> str: ...
def cache_bytes() -> tuple[int, int]: ...
def conv_engines() -> list[tuple[str, str]]: ...
def explain_conv(
    input_shape: Any,
    weight_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    dtype: Any,
    capabilities: str,
    level1_bytes: int,
    level2_bytes: int,
    operator: str = ...,
    output_padding: Any = ...,
) -> str: ...
def conv_geometry(
    input_shape: Any,
    weight_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    dtype: Any,
    operator: str = ...,
    output_padding: Any = ...,
    any_padding: bool = ...,
) -> _ConvGeometry: ...
def xla_handlers() -> dict[str, Any]: ...

class ConvPlan:
    @property
    def workspace_size(self) -> int: ...
    @property
    def kernel(self) -> str: ...
    @property
    def why(self) -> str: ...

class ConvForwardPlan(ConvPlan):
    def __call__(
        self, input: Any, weight: Any, bias: Any = ..., out: Any = ..., workspace: Any = ...
    ) -> Any: ...

class ConvBackwardPlan(ConvPlan):
    def __call__(
        self,
        grad_output: Any,
        input: Any = ...,
        weight: Any = ...,
        out: Any = ...,
        workspace: Any = ...,
    ) -> tuple[Any, Any, Any]: ...
