"""Is a result right, and if not, where? The work behind `backops verify`.

>>> import numpy as np, backops
>>> from backops._calls import Call
>>> from backops._verify.verify import verify
>>> grad_output = np.ones((1, 1, 2, 2), np.float32)
>>> call = Call("avg_pool2d_backward", grad_output, (1, 1, 4, 4), None, {"kernel_size": 2})
>>> result = call.run()
>>> verify(call, result).is_right
True
>>> result["grad_input"][0, 0, 3, 1] = 7
>>> verify(call, result).tensors[0].findings[0]
'the wrong element is grad_input[0, 0, 3, 1]'
"""
