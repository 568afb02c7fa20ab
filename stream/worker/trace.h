#ifndef RESEAT_STREAM_WORKER_TRACE_H
#define RESEAT_STREAM_WORKER_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "stream/worker/choose.h"

/*
 * For measurements, from the environment of `reseat stream serve`:
 *
 * RESEAT_STREAM_TRACE=FILE  a line is appended for each payload of a device's stage that has ended:
 *     STAGE BEGIN_NS END_NS FIRST RECORDS    (write, compute or read; the device's clock)
 * and for payloads that were chosen, in records:
 *     chosen PACK WRITE COMPUTE READ UNPACK
 * RESEAT_STREAM_PAYLOADS=PACK,WRITE,COMPUTE,READ,UNPACK  use these, and choose nothing; or one
 *     number for all.
 */

void trace_payload(enum choose_stage stage, uint64_t begin_ns, uint64_t end_ns, uint64_t first,
                   uint64_t records);
void trace_chosen(const uint32_t payloads[CHOOSE_STAGES]);
/** True if the environment says what to use. */
bool trace_payloads(uint32_t ret_payloads[CHOOSE_STAGES]);

#endif
