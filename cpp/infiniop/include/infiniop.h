/* Everything of InfiniOp that is built here. The library has InfiniCore's other functions too; they
 * return INFINI_STATUS_NOT_IMPLEMENTED. */
#ifndef INFINIOP_H
#define INFINIOP_H

#include "infiniop/handle.h"
#include "infiniop/operator_descriptor.h"
#include "infiniop/ops/adaptive_avg_pool1d.h"
#include "infiniop/ops/adaptive_avg_pool3d.h"
#include "infiniop/ops/averagepool.h"
#include "infiniop/ops/averagepool_backward.h"
#include "infiniop/ops/avg_pool1d.h"
#include "infiniop/ops/avg_pool3d.h"
#include "infiniop/ops/conv.h"
#include "infiniop/ops/conv_backward.h"
#include "infiniop/tensor_descriptor.h"

#endif
