#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "state/base/bytes/msgcheck.h"
#include "state/driver/inventory.h"
#include "tests/support/folder.h"
#include "tests/support/leaks.h"

TestSuite(inventory, .init = folder_clean_environment, .fini = leaks_check, .timeout = 100);

static uint8_t memory_bytes[] = {0x15, 0xcd, 0x5b, 0x07, 0, 0, 0, 0};
static cl_image_format formats[] = {{CL_RGBA, CL_UNORM_INT8}, {CL_R, CL_FLOAT}};
static struct devinfo_value values[] = {
    {CL_DEVICE_GLOBAL_MEM_SIZE, 8, memory_bytes},
    {CL_DEVICE_NAME, 5, (uint8_t *)"Stub"},
    {CL_DEVICE_ILS_WITH_VERSION, 0, (uint8_t *)""},
};
static struct devinfo_formats lists[] = {
    {CL_MEM_READ_ONLY, CL_MEM_OBJECT_IMAGE2D, 2, formats},
    {CL_MEM_WRITE_ONLY, CL_MEM_OBJECT_IMAGE3D, 0, formats},
};
static struct inventory_entry entries[] = {
    {"gpu0",
     {"libstub.so", "Stub platform", "Stub", 3, "00112233445566778899aabbccddeeff", "0000:3b:00.0"},
     {3, values, 2, lists}},
    {"", {"libstub.so", "", "", 0, "", ""}, {0, NULL, 0, NULL}},
};
static const struct inventory sample = {entries, 2};

static void expect_sample(const struct inventory *inv)
{
    const struct inventory_entry *entry = &inv->entries[0];

    cr_assert_eq(inv->count, 2);
    cr_expect_str_eq(entry->name, "gpu0");
    cr_expect_str_eq(entry->key.icd, "libstub.so");
    cr_expect_str_eq(entry->key.platform, "Stub platform");
    cr_expect_str_eq(entry->key.device, "Stub");
    cr_expect_eq(entry->key.ordinal, 3);
    cr_expect_str_eq(entry->key.uuid, "00112233445566778899aabbccddeeff");
    cr_expect_str_eq(entry->key.pci, "0000:3b:00.0");
    cr_assert_eq(entry->info.value_count, 3);
    cr_expect_eq(devinfo_scalar(&entry->info, CL_DEVICE_GLOBAL_MEM_SIZE, 0), 123456789);
    cr_expect_str_eq(devinfo_string(&entry->info, CL_DEVICE_NAME), "Stub");
    cr_expect_eq(devinfo_find(&entry->info, CL_DEVICE_ILS_WITH_VERSION)->size, 0);
    cr_assert_eq(entry->info.format_count, 2);
    cr_expect_eq(entry->info.formats[0].flags, CL_MEM_READ_ONLY);
    cr_expect_eq(entry->info.formats[0].count, 2);
    cr_expect_eq(entry->info.formats[0].formats[1].image_channel_order, CL_R);
    cr_expect_eq(entry->info.formats[1].type, CL_MEM_OBJECT_IMAGE3D);
    cr_expect_eq(entry->info.formats[1].count, 0);
    cr_expect_eq(inv->entries[1].info.value_count, 0);
}

static void encode_sample(char **ret_data, size_t *ret_size)
{
    cr_assert_eq(inventory_encode(&sample, ret_data, ret_size), 0);
}

Test(inventory, what_is_written_is_read_back)
{
    char folder[64], path[128];
    struct inventory inv = {0};
    struct stat status;

    folder_make(folder);
    snprintf(path, sizeof(path), "%s/devices", folder);
    cr_assert_eq(inventory_write(path, &sample), 0);
    cr_assert_eq(inventory_read(path, &inv), 0);
    expect_sample(&inv);
    inventory_finish(&inv);
    cr_expect_eq(inv.count, 0);
    cr_assert_eq(stat(path, &status), 0);
    cr_expect_eq(status.st_mode & 077, 0, "nobody else reads it");
}

Test(inventory, failed_write_leaves_the_old_file)
{
    char folder[64], path[128], command[256];
    struct inventory inv = {0};
    struct inventory large = {entries, INVENTORY_COUNT_MAX + 1};

    folder_make(folder);
    snprintf(path, sizeof(path), "%s/devices", folder);
    cr_assert_eq(inventory_write(path, &sample), 0);
    cr_expect_eq(inventory_write(path, &large), -E2BIG);
    cr_expect_eq(inventory_write("/nowhere/devices", &sample), -ENOENT);
    cr_assert_eq(inventory_read(path, &inv), 0);
    expect_sample(&inv);
    inventory_finish(&inv);
    /* A folder in the way makes the rename itself fail. */
    snprintf(command, sizeof(command), "%s/dir/full", folder);
    snprintf(path, sizeof(path), "%s/dir", folder);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(mkdir(command, 0700), 0);
    cr_expect_lt(inventory_write(path, &sample), 0);
    snprintf(command, sizeof(command), "test \"$(ls %s | wc -l)\" = 2", folder);
    cr_expect_eq(system(command), 0, "no temporary file is left");
}

Test(inventory, what_another_user_wrote_or_could_write_is_refused)
{
    char folder[64], path[128];
    struct inventory inv = {0};

    folder_make(folder);
    snprintf(path, sizeof(path), "%s/devices", folder);
    cr_assert_eq(inventory_write(path, &sample), 0);
    cr_assert_eq(chmod(path, 0620), 0);
    cr_expect_eq(inventory_read(path, &inv), -EPERM);
    cr_assert_eq(chmod(path, 0602), 0);
    cr_expect_eq(inventory_read(path, &inv), -EPERM);
    cr_assert_eq(chmod(path, 0644), 0);
    cr_assert_eq(inventory_read(path, &inv), 0);
    inventory_finish(&inv);
    if (geteuid() == 0) {
        cr_assert_eq(chown(path, 64001, (gid_t)-1), 0);
        cr_expect_eq(inventory_read(path, &inv), -EPERM);
    }
}

Test(inventory, missing_empty_and_special_files_are_refused)
{
    char folder[64], path[128];
    struct inventory inv = {0};

    folder_make(folder);
    snprintf(path, sizeof(path), "%s/devices", folder);
    cr_expect_eq(inventory_read(path, &inv), -ENOENT);
    folder_put(folder, "devices", "");
    cr_expect_eq(inventory_read(path, &inv), -EPROTO);
    folder_put(folder, "devices", "not an inventory");
    cr_expect_eq(inventory_read(path, &inv), -EPROTO);
    unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
    cr_expect_eq(inventory_read(path, &inv), -EPROTO);
    unlink(path);
    folder_put(folder, "devices", "x");
    cr_assert_eq(truncate(path, INVENTORY_SIZE_MAX + 1l), 0);
    cr_expect_eq(inventory_read(path, &inv), -EPROTO);
    cr_expect_eq(inv.count, 0);
}

Test(inventory, truncated_anywhere_is_refused)
{
    struct inventory inv = {0};
    char *data = NULL;
    size_t size = 0;

    encode_sample(&data, &size);
    for (size_t cut = 0; cut < size; cut++) {
        /* A block of its own, so that a sanitiser sees a read past the end. */
        char *part = malloc(cut ? cut : 1);

        memcpy(part, data, cut);
        cr_expect_eq(inventory_decode(part, cut, &inv), -EPROTO, "cut at %zu", cut);
        free(part);
    }
    free(data);
}

Test(inventory, bytes_left_over_are_refused)
{
    struct inventory inv = {0};
    char *data = NULL, *longer;
    size_t size = 0;

    encode_sample(&data, &size);
    longer = calloc(1, size + 1);
    memcpy(longer, data, size);
    cr_expect_eq(inventory_decode(longer, size + 1, &inv), -EPROTO);
    cr_assert_eq(inventory_decode(longer, size, &inv), 0);
    inventory_finish(&inv);
    free(longer);
    free(data);
}

/* Whatever is accepted must be a sound structure: walk and encode it again. */
static void expect_sound(const char *data, size_t size)
{
    struct inventory inv = {0};
    char *again = NULL;
    size_t again_size = 0;
    int err = inventory_decode(data, size, &inv);

    cr_assert(err == 0 || err == -EPROTO, "%d", err);
    if (err)
        return;
    cr_expect_eq(inventory_encode(&inv, &again, &again_size), 0);
    for (size_t i = 0; i < inv.count; i++) {
        for (size_t j = 1; j < inv.entries[i].info.value_count; j++)
            cr_expect_lt(inv.entries[i].info.values[j - 1].name,
                         inv.entries[i].info.values[j].name);
    }
    free(again);
    inventory_finish(&inv);
}

Test(inventory, every_flipped_bit_is_refused_or_harmless)
{
    char *data = NULL;
    size_t size = 0;

    encode_sample(&data, &size);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        data[bit / 8] = (char)(data[bit / 8] ^ (1 << bit % 8));
        expect_sound(data, size);
        data[bit / 8] = (char)(data[bit / 8] ^ (1 << bit % 8));
    }
    free(data);
}

Test(inventory, random_damage_is_refused_or_harmless)
{
    char *data = NULL, *damaged;
    size_t size = 0;
    unsigned seed = 12345;

    encode_sample(&data, &size);
    damaged = malloc(size);
    for (int round = 0; round < 20000; round++) {
        memcpy(damaged, data, size);
        for (int i = 0; i <= round % 4; i++)
            damaged[(size_t)rand_r(&seed) % size] = (char)rand_r(&seed);
        expect_sound(damaged, size);
    }
    free(damaged);
    free(data);
}

Test(inventory, control_characters_and_bad_keys_are_refused)
{
    static const char *const bad[][2] = {
        {"Stub platform", "Stub\nplatform"},
        {"0000:3b:00.0", "0000:3b:00.x"},
        {"00112233445566778899aabbccddeeff", "00112233445566778899AABBCCDDEEFF"},
        {"reseat inventory", "reseat inventors"},
    };
    struct inventory inv = {0};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *data = NULL, *at;
        size_t size = 0;

        encode_sample(&data, &size);
        at = memmem(data, size, bad[i][0], strlen(bad[i][0]));
        cr_assert_not_null(at);
        memcpy(at, bad[i][1], strlen(bad[i][1]));
        cr_expect_eq(inventory_decode(data, size, &inv), -EPROTO, "%s", bad[i][1]);
        free(data);
    }
}

Test(inventory, claims_are_checked_before_they_are_allocated)
{
    struct inventory inv = {0};

    cr_expect_eq(inventory_decode("\xdd\xff\xff\xff\xff", 5, &inv), -EPROTO);
    cr_expect_eq(inventory_decode("\xdf\xff\xff\xff\xff\x01\x01", 7, &inv), -EPROTO);
    cr_expect_eq(inventory_decode("\xc6\xff\xff\xff\xff\x01", 6, &inv), -EPROTO);
}

Test(inventory, msgcheck_takes_one_whole_object)
{
    static const struct {
        const char *data;
        size_t size;
        unsigned depth;
        int expected;
    } cases[] = {
        {"\xc0", 1, 0, 0},
        {"", 0, 0, -EPROTO},
        {"\xc1", 1, 0, -EPROTO},
        {"\xc0\xc0", 2, 0, -EPROTO},
        {"\x90", 1, 1, 0},
        {"\x90", 1, 0, -EPROTO},
        {"\x92\x01\xe0", 3, 1, 0},
        {"\x92\x01", 2, 1, -EPROTO},
        {"\x91\x91\x91\x01", 4, 3, 0},
        {"\x91\x91\x91\x01", 4, 2, -EPROTO},
        {"\x81\xa1k\x93\x01\x02\x03", 7, 2, 0},
        {"\x81\xa1k", 3, 2, -EPROTO},
        {"\xcb\x01\x02\x03\x04\x05\x06\x07\x08", 9, 0, 0},
        {"\xcb\x01\x02\x03\x04\x05\x06\x07", 8, 0, -EPROTO},
        {"\xd8\x01\x01\x02\x03\x04\x05\x06\x07\x08\x01\x02\x03\x04\x05\x06\x07\x08", 18, 0, 0},
        {"\xc7\x02\x05\x61\x62", 5, 0, 0},
        {"\xc7\x02\x05\x61", 4, 0, -EPROTO},
        {"\xd9\x03"
         "abc",
         5, 0, 0},
        {"\xd9\x04"
         "abc",
         5, 0, -EPROTO},
        {"\xdc\x00\x02\xc2\xc3", 5, 1, 0},
        {"\xde\x00\x01\xc2\xc3", 5, 1, 0},
        {"\xde\x00\x01\xc2", 4, 1, -EPROTO},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        cr_expect_eq(msgcheck(cases[i].data, cases[i].size, cases[i].depth), cases[i].expected,
                     "case %zu", i);
}

Test(inventory, append_moves_entries)
{
    struct inventory one = {0}, two = {0};
    char *data = NULL;
    size_t size = 0;

    encode_sample(&data, &size);
    cr_assert_eq(inventory_decode(data, size, &one), 0);
    cr_assert_eq(inventory_decode(data, size, &two), 0);
    cr_assert_eq(inventory_append(&one, &two), 0);
    cr_expect_eq(one.count, 4);
    cr_expect_eq(two.count, 0);
    cr_expect_str_eq(one.entries[2].name, "gpu0");
    inventory_finish(&one);
    free(data);
}

static int run_lister(const char *filenames, const char *output, const char *errors)
{
    char command[2048];

    snprintf(command, sizeof(command),
             "OCL_ICD_VENDORS=/nowhere/ OCL_ICD_FILENAMES=%s %s --timeout 2 %s 2>%s", filenames,
             LISTER_PATH, output, errors);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(inventory, lister_loses_only_the_drivers_that_fail)
{
    char folder[64], path[128], errors[128], command[256];
    struct inventory inv = {0};

    folder_make(folder);
    snprintf(path, sizeof(path), "%s/devices", folder);
    snprintf(errors, sizeof(errors), "%s/errors", folder);
    cr_assert_eq(run_lister(STUB_CRASH_PATH ":" STUB_PATH ":" STUB_HANG_PATH ":/nowhere/libnone.so",
                            path, errors),
                 0);
    cr_assert_eq(inventory_read(path, &inv), 0);
    cr_assert_eq(inv.count, 3);
    cr_expect_str_eq(inv.entries[0].name, "");
    cr_expect_str_eq(inv.entries[0].key.icd, STUB_PATH);
    cr_expect_str_eq(inv.entries[2].key.device, "Ot??her?");
    cr_expect_eq(devinfo_scalar(&inv.entries[1].info, CL_DEVICE_GLOBAL_MEM_SIZE, 0), 1234567);
    inventory_finish(&inv);
    snprintf(command, sizeof(command), "grep -q 'stub_crash.*crashed' %s", errors);
    cr_expect_eq(system(command), 0);
    snprintf(command, sizeof(command), "grep -q 'stub_hang.*did not answer in 2 s' %s", errors);
    cr_expect_eq(system(command), 0);
}

Test(inventory, lister_writes_an_empty_inventory_without_drivers)
{
    char folder[64], path[128];
    struct inventory inv = {entries, 9};

    folder_make(folder);
    snprintf(path, sizeof(path), "%s/devices", folder);
    cr_assert_eq(run_lister("''", path, "/dev/null"), 0);
    cr_assert_eq(inventory_read(path, &inv), 0);
    cr_expect_eq(inv.count, 0);
    inventory_finish(&inv);
    cr_expect_eq(run_lister("''", "/nowhere/devices", "/dev/null"), 1);
}
