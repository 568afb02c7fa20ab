#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include "state/driver/driver.h"
#include "state/driver/icd.h"
#include "tests/support/folder.h"
#include "tests/support/leaks.h"

TestSuite(driver, .init = folder_clean_environment, .fini = leaks_check, .timeout = 60);

/* What the stub calls its third device, as it may be shown. */
#define OTHER "Ot??her?"

static char folder[64];

static void expect_libraries(const char *const *names, size_t count)
{
    struct icd_list list = {0};

    cr_assert_eq(icd_list_read(&list), 0);
    cr_assert_eq(list.count, count, "%zu libraries, not %zu", list.count, count);
    for (size_t i = 0; i < count; i++)
        cr_expect_str_eq(list.libraries[i], names[i]);
    icd_list_finish(&list);
}

Test(driver, folder_is_read_in_the_order_of_names)
{
    folder_make(folder);
    folder_put(folder, "b.icd", "libb.so\n");
    folder_put(folder, "a.icd", "  liba.so \t\r\nsecond line is not read\n");
    folder_put(folder, "c.icd", "/somewhere/libc-driver.so");
    folder_put(folder, "d.txt", "libd.so");
    folder_put(folder, "e.icd", "\n");
    folder_put(folder, ".icd", "libf.so");
    setenv("OCL_ICD_VENDORS", folder, 1);
    expect_libraries((const char *[]){"liba.so", "libb.so", "/somewhere/libc-driver.so"}, 3);
}

Test(driver, filenames_add_to_the_folder_and_repeat_nothing)
{
    folder_make(folder);
    folder_put(folder, "a.icd", "liba.so");
    setenv("OCL_ICD_VENDORS", folder, 1);
    setenv("OCL_ICD_FILENAMES", "libx.so::liba.so:/y/liby.so", 1);
    expect_libraries((const char *[]){"liba.so", "libx.so", "/y/liby.so"}, 3);
}

Test(driver, kept_values_come_before_the_loaders_variables)
{
    char other[64];

    folder_make(folder);
    folder_make(other);
    folder_put(folder, "ours.icd", "libreseat.so");
    folder_put(other, "user.icd", "libuser.so");
    setenv("OCL_ICD_VENDORS", folder, 1);
    setenv("OCL_ICD_FILENAMES", "libwrong.so", 1);
    setenv("RESEAT_ICD_VENDORS", other, 1);
    setenv("RESEAT_ICD_FILENAMES", "", 1);
    expect_libraries((const char *[]){"libuser.so"}, 1);
}

Test(driver, empty_kept_value_means_the_default_folder)
{
    char other[64];

    folder_make(folder);
    folder_make(other);
    folder_put(folder, "ours.icd", "libwrong.so");
    folder_put(other, "default.icd", "libdefault.so");
    setenv("OCL_ICD_VENDORS", folder, 1);
    setenv("OPENCL_VENDOR_PATH", other, 1);
    setenv("RESEAT_ICD_VENDORS", "", 1);
    expect_libraries((const char *[]){"libdefault.so"}, 1);
}

Test(driver, vendors_may_name_one_file_or_one_library)
{
    char path[128];

    folder_make(folder);
    folder_put(folder, "one.icd", "libone.so");
    folder_put(folder, "two.icd", "libtwo.so");
    snprintf(path, sizeof(path), "%s/two.icd", folder);
    setenv("OCL_ICD_VENDORS", path, 1);
    expect_libraries((const char *[]){"libtwo.so"}, 1);
    setenv("OPENCL_VENDOR_PATH", folder, 1);
    setenv("OCL_ICD_VENDORS", "one.icd", 1);
    expect_libraries((const char *[]){"libone.so"}, 1);
    setenv("OCL_ICD_VENDORS", "/x/libthree.so", 1);
    expect_libraries((const char *[]){"/x/libthree.so"}, 1);
}

Test(driver, our_own_library_is_not_a_driver)
{
    struct device **devices = NULL;
    size_t count = 0;

    cr_expect(icd_is_ours("/usr/lib/reseat/libreseat.so"));
    cr_expect(icd_is_ours("libreseat.so.0"));
    cr_expect_not(icd_is_ours("/libreseat/libpocl.so"));
    setenv("OCL_ICD_VENDORS", "/x/libreseat.so", 1);
    expect_libraries(NULL, 0);
    /* Under another name its marker gives it away. */
    cr_expect_eq(driver_list_library(STUB_OURS_PATH, &devices, &count), -ENOENT);
}

Test(driver, bad_drivers_are_skipped)
{
    struct device **devices = NULL;
    size_t count = 0;

    folder_make(folder);
    setenv("OCL_ICD_VENDORS", folder, 1);
    setenv("OCL_ICD_FILENAMES", "/nowhere/libnone.so:libm.so.6:" STUB_PATH, 1);
    cr_assert_eq(driver_list(&devices, &count), 0);
    cr_assert_eq(count, 3);
    cr_expect_str_eq(devices[0]->key.icd, STUB_PATH);
    free(devices);
}

Test(driver, no_driver_is_an_empty_list)
{
    struct device **devices = NULL;
    size_t count = 7;

    setenv("OCL_ICD_VENDORS", "/nowhere/", 1);
    cr_assert_eq(driver_list(&devices, &count), 0);
    cr_expect_eq(count, 0);
    free(devices);
}

Test(driver, keys_tell_devices_apart)
{
    struct device **devices = NULL;
    size_t count = 0;

    cr_assert_eq(driver_list_library(STUB_PATH, &devices, &count), 0);
    cr_assert_eq(count, 3);
    for (size_t i = 0; i < 3; i++)
        cr_expect_str_eq(devices[i]->key.platform, "Stub platform");
    cr_expect_str_eq(devices[0]->key.device, "Stub");
    cr_expect_str_eq(devices[2]->key.device, OTHER);
    cr_expect_eq(devices[0]->key.ordinal, 0);
    cr_expect_eq(devices[1]->key.ordinal, 1);
    cr_expect_eq(devices[2]->key.ordinal, 0);
    cr_expect_str_eq(devices[0]->key.uuid, "a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1");
    cr_expect_str_eq(devices[1]->key.uuid, "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2");
    cr_expect_str_eq(devices[2]->key.uuid, "");
    cr_expect_str_eq(devices[0]->key.pci, "0001:a1:02.3");
    /* NVIDIA's slot holds device and function: 0x1a is device 3, function 2. */
    cr_expect_str_eq(devices[2]->key.pci, "0010:3b:03.2");
    cr_expect_eq(device_version(devices[0]), CL_MAKE_VERSION(3, 0, 0));
    free(devices);
}

Test(driver, what_two_devices_share_is_no_identity)
{
    struct device **devices = NULL;
    size_t count = 0;

    cr_assert_eq(driver_list_library(STUB_SAME_UUID_PATH, &devices, &count), 0);
    cr_assert_eq(count, 3);
    for (size_t i = 0; i < 2; i++) {
        cr_expect_str_eq(devices[i]->key.uuid, "");
        cr_expect_str_eq(devices[i]->key.pci, "");
    }
    cr_expect_not(device_key_equal(&devices[0]->key, &devices[1]->key));
    free(devices);
}

Test(driver, keys_compare_by_what_both_have)
{
    const struct device_key base = {.icd = "lib.so", .platform = "P", .device = "D"};
    struct device_key a = base, b = base;

    cr_expect(device_key_equal(&a, &b));
    b.ordinal = 1;
    cr_expect_not(device_key_equal(&a, &b));
    strcpy(a.uuid, "00112233445566778899aabbccddeeff");
    cr_expect_not(device_key_equal(&a, &b), "a UUID on one side alone says nothing");
    strcpy(b.uuid, a.uuid);
    cr_expect(device_key_equal(&a, &b), "other cards came and went: the ordinal moved");
    strcpy(a.pci, "0000:01:00.0");
    strcpy(b.pci, "0000:02:00.0");
    cr_expect_not(device_key_equal(&a, &b));
    a.uuid[0] = '\0';
    strcpy(b.pci, a.pci);
    cr_expect(device_key_equal(&a, &b));
    strcpy(b.icd, "other.so");
    cr_expect_not(device_key_equal(&a, &b), "another driver is another device");
}

Test(driver, opening_one_device_opens_only_its_driver)
{
    struct device_key key = {.icd = STUB_PATH, .platform = "Stub platform", .device = "Stub"};
    struct device *device = NULL, *again = NULL;

    setenv("OCL_ICD_FILENAMES", STUB_SAME_UUID_PATH ":" STUB_PATH, 1);
    strcpy(key.uuid, "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2");
    cr_assert_eq(driver_open_device(&key, &device), 0);
    cr_expect_eq(device->key.ordinal, 1);
    cr_expect_eq(devinfo_scalar(&device->info, CL_DEVICE_GLOBAL_MEM_SIZE, 0), 1234567);
    cr_assert_eq(driver_open_device(&key, &again), 0);
    cr_expect_eq(device, again);
    cr_expect_not_null(dlopen(STUB_PATH, RTLD_NOW | RTLD_NOLOAD));
    cr_expect_null(dlopen(STUB_SAME_UUID_PATH, RTLD_NOW | RTLD_NOLOAD));
}

Test(driver, device_that_is_not_there_is_refused)
{
    struct device_key key = {.icd = STUB_PATH, .platform = "Stub platform", .device = "Gone"};
    struct device *device = (struct device *)&key;

    setenv("OCL_ICD_FILENAMES", STUB_PATH ":/nowhere/libnone.so", 1);
    cr_expect_eq(driver_open_device(&key, &device), -ENOENT);
    strcpy(key.icd, "/nowhere/libnone.so");
    cr_expect_eq(driver_open_device(&key, &device), -ENOENT);
    cr_expect_eq((void *)device, (void *)&key, "outputs stay untouched on failure");
}

Test(driver, a_key_opens_no_driver_that_the_user_has_not_configured)
{
    struct device_key key = {.icd = STUB_PATH, .platform = "Stub platform", .device = OTHER};
    struct device *device = NULL;

    setenv("OCL_ICD_FILENAMES", STUB_SAME_UUID_PATH, 1);
    cr_expect_eq(driver_open_device(&key, &device), -ENOENT);
    cr_expect_null(dlopen(STUB_PATH, RTLD_NOW | RTLD_NOLOAD), "its code runs already");
    setenv("OCL_ICD_FILENAMES", STUB_PATH, 1);
    cr_expect_eq(driver_open_device(&key, &device), 0, "one that is configured by now");
}

Test(driver, what_was_configured_at_the_start_opens_though_the_environment_is_cleared)
{
    struct device_key key = {.icd = STUB_SAME_UUID_PATH, .platform = "none", .device = "none"};
    struct device *device = NULL;

    setenv("OCL_ICD_FILENAMES", STUB_SAME_UUID_PATH ":" STUB_PATH, 1);
    cr_expect_eq(driver_open_device(&key, &device), -ENOENT);
    unsetenv("OCL_ICD_FILENAMES");
    key = (struct device_key){.icd = STUB_PATH, .platform = "Stub platform", .device = OTHER};
    cr_expect_eq(driver_open_device(&key, &device), 0);
}

static void *open_stub(void *data)
{
    struct device_key key = {.icd = STUB_PATH, .platform = "Stub platform", .device = OTHER};
    struct device **slot = data;

    if (driver_open_device(&key, slot))
        *slot = NULL;
    return NULL;
}

Test(driver, threads_that_open_at_once_get_the_same_device)
{
    pthread_t threads[8];
    struct device *found[8] = {0};

    setenv("OCL_ICD_FILENAMES", STUB_PATH, 1);
    for (size_t i = 0; i < 8; i++)
        pthread_create(&threads[i], NULL, open_stub, &found[i]);
    for (size_t i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    cr_assert_not_null(found[0]);
    for (size_t i = 1; i < 8; i++)
        cr_expect_eq(found[i], found[0]);
}

/* Vendors' libraries leak from parts that they have unloaded: no leak check. */
TestSuite(driver_real, .init = folder_clean_environment, .timeout = 60);

Test(driver_real, lists_its_devices_with_formats)
{
    struct device **devices = NULL;
    size_t count = 0, pocl = 0;

    setenv("POCL_DEVICES", "basic pthread", 1);
    cr_assert_eq(driver_list(&devices, &count), 0);
    for (size_t i = 0; i < count; i++) {
        struct device *device = devices[i];

        if (strcmp(device->key.platform, "Portable Computing Language") != 0)
            continue;
        cr_expect_eq(devinfo_query_formats(device->cl, device->platform, device->id, &device->info),
                     0);
        cr_expect_eq(device->info.format_count, 24, "four accesses of six types");
        cr_expect_gt(device->info.formats[0].count, 0);
        cr_expect_eq(strncmp(device->key.device, pocl ? "pthread" : "basic", pocl ? 7 : 5), 0);
        pocl++;
    }
    cr_expect_eq(pocl, 2, "%zu devices of POCL", pocl);
    free(devices);
}
