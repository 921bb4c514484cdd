/* Beginning and end, and the whole runtime. */
#ifndef ACL_H
#define ACL_H

#include "acl_base.h"
#include "acl_rt.h"

/* NULL, or the path of a file that can be read; nothing in it has an effect here. */
ACL_API aclError aclInit(const char* configPath);
/* Waits for what is queued. All contexts are gone afterwards. */
ACL_API aclError aclFinalize(void);

/* What the last failure of the calling thread was; NULL where there was none. Good until the next
 * failure of the thread. */
ACL_API const char* aclGetRecentErrMsg(void);

#endif
