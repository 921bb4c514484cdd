/* Everything of InfiniOp. */
#ifndef INFINIOP_H
#define INFINIOP_H

#include "infiniop/handle.h"
#include "infiniop/operator_descriptor.h"
#include "infiniop/ops/averagepool_backward.h"
#include "infiniop/ops/conv_backward.h"
#include "infiniop/tensor_descriptor.h"

#endif
