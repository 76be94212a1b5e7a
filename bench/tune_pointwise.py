import sys, itertools, numpy as np, torch, json, os
import nbxtensor as nbx
from nbxtensor.base.dtypes import float32, bfloat16
from nbxtensor.device import get
from nbxtensor.device.artifact import Options
from nbxtensor.kernel.launch import Plan, Pointer
from nbxtensor.kernel.pointwise import pointwise_flat_kernel
from nbxtensor.kernel import math as M
dev=get("cuda"); n=1<<26
flush=torch.empty(256<<20,dtype=torch.int8,device="cuda")
def t(f,k=9):
    f(); ev=[(torch.cuda.Event(enable_timing=True),torch.cuda.Event(enable_timing=True)) for _ in range(k)]
    for a,b in ev:
        flush.zero_(); a.record(); f(); b.record()
    torch.cuda.synchronize(); return float(np.median([a.elapsed_time(b) for a,b in ev]))*1e3
fns={k:getattr(M,k) for k in ("sin","cos","silu","sigmoid","gelu","gelu_tanh","tanh","erf","exp","log","log1p","expm1","softplus")}
host=np.random.default_rng(0).standard_normal(n,dtype=np.float32)
res={}
for dt,td in ((float32,torch.float32),(bfloat16,torch.bfloat16)):
    a=torch.from_numpy(host).cuda().to(td); o=torch.empty_like(a)
    cp=t(lambda:o.copy_(a))
    print(dt.name,"copy",round(cp,1))
    for name,fn in fns.items():
        row=[]
        for block,warps in ((1024,4),(2048,8),(512,2),(256,1),(512,4),(512,1),(1024,8),(2048,4)):
            plan=Plan(name,pointwise_flat_kernel,dev,(-(-n//block),1,1),{"out_ptr":Pointer(dt),"x0":Pointer(dt),"n_elements":n},{"x1":None,"x2":None,"FN":fn,"KINDS":(0,3,3),"TYPES":(float32,)*3,"RESULT":dt,"BLOCK_SIZE":block},Options(num_warps=warps))
            us=t(lambda:plan.run(o.data_ptr(),a.data_ptr()))
            k=plan._kernels[1]
            row.append(f"{cp/us*100:5.1f}({k.artifact.resources.registers})")
        print(f"{name:10s}", *row, flush=True)
