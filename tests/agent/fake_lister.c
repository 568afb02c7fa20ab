#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/agent/fake_devices.h"

/*
 * In place of reseat-lister: writes the devices that POCL_FAKE_DEVICES names (a variable that
 * concerns drivers, so that it reaches us from the client), as fake_devices.h has them. "hang"
 * never ends, "crash" does at once. More of them are in the file FAKE_MORE_DEVICES, where there is
 * one.
 */

int main(int argc, char **argv)
{
    const char *devices = getenv("POCL_FAKE_DEVICES");
    struct inventory_entry entries[FAKE_DEVICES_MAX] = {0};
    struct inventory inventory = {.entries = entries};

    if (argc != 2)
        return 2;
    char more[256] = "", *copy;
    FILE *file = getenv("FAKE_MORE_DEVICES") ? fopen(getenv("FAKE_MORE_DEVICES"), "r") : NULL;

    if (file) {
        more[fread(more, 1, sizeof(more) - 1, file)] = '\0';
        fclose(file);
    }
    if (asprintf(&copy, "%s,%s", devices ? devices : "gpu:Fake GPU,cpu:Fake one,cpu:Fake two",
                 more) < 0)
        return 1;
    if (strstr(copy, "hang"))
        pause();
    if (strstr(copy, "crash"))
        abort();
    inventory.count = fake_devices(copy, "libfake.so", entries);
    int error = inventory_write(argv[1], &inventory);
    free(copy);
    return error ? 1 : 0;
}
