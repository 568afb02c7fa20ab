#include "remote/server/listener/ledger.h"

/* Of what is left, as much as one wish may take. */
#define PLENTY 8

uint64_t ledger_ask(struct ledger *ledger, uint64_t *held, uint64_t least, uint64_t wish)
{
    uint64_t left = ledger->total - ledger->given;
    if (least > left || wish < least)
        return 0;
    uint64_t bytes = wish <= left / PLENTY ? wish : least;
    ledger->given += bytes;
    *held += bytes;
    return bytes;
}

void ledger_return(struct ledger *ledger, uint64_t *held, uint64_t bytes)
{
    bytes = bytes < *held ? bytes : *held;
    *held -= bytes;
    ledger->given -= bytes;
}
