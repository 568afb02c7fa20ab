#ifndef RESEAT_REMOTE_DRIVER_OBJECTS_LENT_H
#define RESEAT_REMOTE_DRIVER_OBJECTS_LENT_H

#include "state/driver/between.h"

/** The functions that LEND_NAME and LENT_RETURN_NAME name. */
struct lent_memory *lent_take(cl_context context, size_t size);
void lent_give(struct lent_memory *lent);

#endif
