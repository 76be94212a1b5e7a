"""The CPU compiler: TTIR text -> own IR -> vector LLVM IR -> relocatable x86-64 object."""
