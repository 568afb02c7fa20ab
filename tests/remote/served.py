#!/usr/bin/python3
"""Run a command while a device server of POCL's devices runs, which RESEAT_SERVER names."""

import os
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory(prefix="served-") as folder:
    address = f"unix:{folder}/s"
    served = dict(os.environ, OCL_ICD_VENDORS="/etc/OpenCL/vendors/pocl.icd",
                  POCL_DEVICES="basic pthread", POCL_CACHE_DIR=os.path.join(folder, "cache"))
    with subprocess.Popen([os.environ["TEST_SERVE"], "--listen", address], env=served,
                          stdout=subprocess.PIPE) as server:
        try:
            server.stdout.readline()
            done = subprocess.run(sys.argv[1:], env=dict(os.environ, RESEAT_SERVER=address),
                                  check=False)
        finally:
            server.terminate()
sys.exit(done.returncode)
