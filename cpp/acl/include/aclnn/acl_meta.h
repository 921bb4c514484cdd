/* Tensors, arrays and scalars: the arguments of operators. They are copied; nothing given here has
 * to outlive the call, but the data of a tensor. */
#ifndef ACL_META_H
#define ACL_META_H

#include "acl/acl_base.h"

typedef int32_t aclnnStatus;

#define ACLNN_SUCCESS 0
#define ACLNN_ERR_PARAM_NULLPTR 161001
#define ACLNN_ERR_PARAM_INVALID 161002
#define ACLNN_ERR_RUNTIME_ERROR 361001
#define ACLNN_ERR_INNER 561000
#define ACLNN_ERR_INNER_FIND_KERNEL_ERROR 561003
#define ACLNN_ERR_INNER_NULLPTR 561103

typedef struct aclOpExecutor aclOpExecutor;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclBoolArray aclBoolArray;
typedef struct aclFloatArray aclFloatArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclScalarList aclScalarList;

/* Create functions return NULL for what is not possible. */

/* `stride` and `offset` count elements; a NULL `stride` means contiguous. `data` may be NULL until
 * a launch needs it. */
ACL_API aclTensor* aclCreateTensor(const int64_t* viewDims, uint64_t viewDimsNum,
                                   aclDataType dataType, const int64_t* stride, int64_t offset,
                                   aclFormat format, const int64_t* storageDims,
                                   uint64_t storageDimsNum, void* tensorData);
ACL_API aclScalar* aclCreateScalar(void* value, aclDataType dataType);
ACL_API aclIntArray* aclCreateIntArray(const int64_t* value, uint64_t size);
ACL_API aclBoolArray* aclCreateBoolArray(const bool* value, uint64_t size);
ACL_API aclFloatArray* aclCreateFloatArray(const float* value, uint64_t size);
ACL_API aclTensorList* aclCreateTensorList(const aclTensor* const* value, uint64_t size);
ACL_API aclScalarList* aclCreateScalarList(const aclScalar* const* value, uint64_t size);

/* Nothing happens to NULL. */
ACL_API aclnnStatus aclDestroyTensor(const aclTensor* tensor);
ACL_API aclnnStatus aclDestroyScalar(const aclScalar* scalar);
ACL_API aclnnStatus aclDestroyIntArray(const aclIntArray* array);
ACL_API aclnnStatus aclDestroyBoolArray(const aclBoolArray* array);
ACL_API aclnnStatus aclDestroyFloatArray(const aclFloatArray* array);
/* And the tensors or scalars in it. */
ACL_API aclnnStatus aclDestroyTensorList(const aclTensorList* array);
ACL_API aclnnStatus aclDestroyScalarList(const aclScalarList* array);

/* The arrays that these return are made with new[]; the caller deletes them. */
ACL_API aclnnStatus aclGetViewShape(const aclTensor* tensor, int64_t** viewDims,
                                    uint64_t* viewDimsNum);
ACL_API aclnnStatus aclGetStorageShape(const aclTensor* tensor, int64_t** storageDims,
                                       uint64_t* storageDimsNum);
ACL_API aclnnStatus aclGetViewStrides(const aclTensor* tensor, int64_t** stridesValue,
                                      uint64_t* stridesNum);
ACL_API aclnnStatus aclGetViewOffset(const aclTensor* tensor, int64_t* offset);
ACL_API aclnnStatus aclGetFormat(const aclTensor* tensor, aclFormat* format);
ACL_API aclnnStatus aclGetDataType(const aclTensor* tensor, aclDataType* dataType);
ACL_API aclnnStatus aclGetIntArraySize(const aclIntArray* array, uint64_t* size);
ACL_API aclnnStatus aclGetScalarListSize(const aclScalarList* scalarList, uint64_t* size);

#endif
