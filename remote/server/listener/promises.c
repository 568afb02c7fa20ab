#include "remote/server/listener/promises.h"

/* Of what is left, as much as one wish may take. */
#define PLENTY 8

uint64_t promises_ask(struct promises *promises, uint64_t *held, uint64_t least, uint64_t wish)
{
    uint64_t left = promises->total - promises->given;
    if (least > left || wish < least)
        return 0;
    uint64_t bytes = wish <= left / PLENTY ? wish : least;
    promises->given += bytes;
    *held += bytes;
    return bytes;
}

void promises_return(struct promises *promises, uint64_t *held, uint64_t bytes)
{
    bytes = bytes < *held ? bytes : *held;
    *held -= bytes;
    promises->given -= bytes;
}
