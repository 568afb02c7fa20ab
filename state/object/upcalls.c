#include "state/object/upcalls.h"

const struct upcalls *the_upcalls;
