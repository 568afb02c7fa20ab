#ifndef RESEAT_STREAM_WORKER_WORKER_H
#define RESEAT_STREAM_WORKER_WORKER_H

/* Exit statuses of a worker; 0: its client has hung up. All others: as WORKER_AGAIN. */
#define WORKER_FAILED 65 /**< The stream has failed, and its client knows why. */
#define WORKER_AGAIN  75 /**< Another worker may do it: the device failed. */

#endif
